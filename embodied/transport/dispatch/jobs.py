"""Job: one request on its way through a server, whatever the backend."""

import abc
import dataclasses
import traceback
from collections.abc import Hashable
from typing import Any

from ..errors import RemoteError, Unanswered
from ..interface import Request

__all__ = ['Job', 'Outcome', 'failure']


@dataclasses.dataclass(slots=True)
class Outcome:
    """What a handler returned, or the description of what it raised."""

    ok: bool
    value: Any


def failure(error: BaseException) -> Outcome:
    """Describes an exception for the client, see `RemoteError`."""
    return Outcome(
        False,
        {
            'kind': type(error).__name__,
            'reason': str(error),
            'text': ''.join(traceback.format_exception(error)),
            'errno': _errno(error),
        },
    )


def _errno(error: BaseException | None) -> int | None:
    """The errno of this error, or of the first of its causes that has one."""
    while error is not None:
        if isinstance(error, (OSError, RemoteError)) and error.errno is not None:
            return error.errno
        error = error.__cause__ or error.__context__
    return None


class Job(abc.ABC):
    """A request with its route back. `load` and `seal` run in a worker thread."""

    client: Hashable
    rows: int
    arrived: float  # time.monotonic()
    nbytes: int
    outcome: Outcome | None = None
    unanswered = False  # whether the client gets no reply
    schema: bytes = b''  # of the arguments; empty when they have no common layout
    data: Any = None

    @property
    @abc.abstractmethod
    def request(self) -> Request:
        """What a handler may know about it."""

    @abc.abstractmethod
    def load(self) -> tuple:
        """The arguments; raises MessageError when the bytes make no sense."""

    @abc.abstractmethod
    def seal(self) -> None:
        """Prepares the outcome for sending; may raise MessageError."""

    def succeed(self, value: Any) -> None:
        self.outcome = Outcome(True, value)

    def fail(self, error: BaseException) -> None:
        self.outcome = failure(error)
        self.unanswered = isinstance(error, Unanswered)
