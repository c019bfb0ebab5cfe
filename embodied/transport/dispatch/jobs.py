"""Job: one request on its way through a server, whatever the backend."""

import abc
import dataclasses
import traceback
from collections.abc import Hashable
from typing import Any

from ..errors import Unanswered
from ..interface import Request

__all__ = ['Job', 'Outcome', 'failure']


@dataclasses.dataclass(slots=True)
class Outcome:
    """What a handler returned, or the description of what it raised."""

    ok: bool
    value: Any


def failure(error: BaseException) -> Outcome:
    """Describes an exception for the client, with its traceback as text."""
    text = ''.join(traceback.format_exception(error))
    kind = type(error).__name__
    return Outcome(False, {'kind': kind, 'message': f'{kind}: {error}', 'text': text})


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
