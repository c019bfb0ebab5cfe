"""Errors of the transport: what can go wrong between two processes."""

from embodied.core.errors import DreamerError

__all__ = [
    'AddressInUse',
    'Disconnected',
    'MessageError',
    'Refused',
    'RemoteError',
    'Timeout',
    'TransportError',
]


class TransportError(DreamerError):
    """Base of everything that the transport raises."""


class AddressInUse(TransportError):
    """Another process serves at this address; a free one may be tried."""


class Disconnected(TransportError):
    """The connection or the object is closed and the call will not be answered."""


class Timeout(TransportError, TimeoutError):
    """No answer before the deadline; the peer may be slow, absent or unreachable."""


class Refused(TransportError):
    """The peer answered but will not talk: versions, run or settings differ."""


class MessageError(TransportError):
    """A value cannot be sent, or received bytes are not a valid message."""


class RemoteError(TransportError):
    """The handler at the other end raised. `traceback` is its text from there, `server`
    the name of that end, where the backend tells it."""

    def __init__(self, message: str, traceback: str = '', server: str = '') -> None:
        super().__init__(message)
        self.traceback = traceback
        self.server = server

    def __str__(self) -> str:
        message = super().__str__()
        return f'{message}\n\nRemote {self.traceback}' if self.traceback else message
