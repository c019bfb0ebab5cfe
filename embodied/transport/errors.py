"""Errors of the transport: what can go wrong between two processes."""

from collections.abc import Iterable

from embodied.core.errors import DreamerError

__all__ = [
    'AddressInUse',
    'Disconnected',
    'MessageError',
    'Refused',
    'RefusedRows',
    'RemoteError',
    'Timeout',
    'TransportError',
    'Unanswered',
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


class Unanswered(TransportError):
    """Raised by a handler whose server is about to end: its requests get no reply, and
    their clients send them again to the next server at this address."""


class RefusedRows(TransportError):
    """Raised by a batched handler before it has any effect: the clients that sent one
    of `rows` get `error`, and the handler is called again for the others."""

    def __init__(self, rows: Iterable[int], error: Exception) -> None:
        super().__init__(str(error))
        self.rows = frozenset(rows)
        self.error = error


class RemoteError(TransportError):
    """The handler at the other end raised. `kind` is the name of that exception's type,
    `traceback` its text from there, `server` the name of that end, where the backend
    tells it."""

    def __init__(
        self, message: str, traceback: str = '', server: str = '', kind: str = ''
    ) -> None:
        super().__init__(message)
        self.traceback = traceback
        self.server = server
        self.kind = kind

    @property
    def reason(self) -> str:
        """The message of the exception, without the name of its type."""
        return str(self.args[0]).removeprefix(f'{self.kind}: ')

    def __str__(self) -> str:
        message = super().__str__()
        return f'{message}\n\nRemote {self.traceback}' if self.traceback else message
