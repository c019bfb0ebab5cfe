"""Errors of the transport: what can go wrong between two processes."""

from collections.abc import Iterable

from embodied.core import errors

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


class TransportError(errors.DreamerError):
    """Base of all errors of the transport."""


class AddressInUse(TransportError):
    """Another process listens at `address`, where a server tried to; '' if unknown."""

    transient = True

    def __init__(self, message: str, address: str = '') -> None:
        super().__init__(message)
        self.address = address


class Disconnected(TransportError):
    """The connection or the client is closed, and the call will not be answered."""

    transient = True


class Timeout(TransportError, TimeoutError):
    """No answer before the deadline; the server may be slow, absent or unreachable."""

    transient = True


class Refused(TransportError):
    """The server has refused the client: versions, run, settings or keys differ."""

    final = True


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
    """The handler at the other end raised an exception.

    reason: its message. traceback: its text. server: the name of the server, '' if the
    backend has none; it is kept as `origin`. kind: the name of its type, '' if that is
    not known. errno: of the first OSError among it and its causes, None if there is
    none.
    """

    def __init__(
        self,
        reason: str,
        traceback: str = '',
        server: str = '',
        kind: str = '',
        errno: int | None = None,
    ) -> None:
        super().__init__(f'{kind}: {reason}' if kind else reason)
        self.reason = reason
        self.traceback = traceback
        self.origin = server
        self.kind = kind
        self.errno = errno

    @property
    def brief(self) -> str:
        """The message; with the stack if it is not one of our own errors."""
        return self.args[0] if hasattr(errors, self.kind) else str(self)

    def __str__(self) -> str:
        message = super().__str__()
        return f'{message}\n\nRemote {self.traceback}' if self.traceback else message
