"""Health: what a role and its supervisor tell each other, without ever waiting."""

import functools
import threading
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple, ParamSpec, TypeVar

from ...shared.activities import COMPILING, SAVING, in_words
from ..timeouts import HEARTBEAT
from .stall import StallDetector

__all__ = ['COMPILING', 'SAVING', 'Health', 'Heartbeat']

P = ParamSpec('P')
R = TypeVar('R')


class Heartbeat(NamedTuple):
    """One sign of life."""

    progress: int = 0  # any measure of what was achieved; only its changes count
    busy: bool = False  # inside of work that has to come to an end
    activity: str = ''  # COMPILING or SAVING, if that is what it does
    doing: str = ''  # what has taken long so far, in words for people
    hardware: str = ''  # what the agent trains on, in words for people
    unsaved: bool = False  # something would be lost if it was killed now
    ending: bool = False  # the role has decided that the run is over
    stuck: float = 0.0  # seconds for which one of several tasks has not moved
    reason: str = ''  # why the run is over, if it is


class Health:
    """Filled by the threads of a role, read by the one that sends the heartbeats.

    A role is hung if it stays inside of `busy` without progress and without using CPU
    time. Waiting for another process therefore belongs outside of it.

    asked: why the supervisor asks the role to end; '' as long as it does not.
    compiling: the programs that are being compiled, and for how many seconds.
    hardware: what the agent trains on, in words.
    """

    def __init__(self) -> None:
        self.asked = ''
        self.compiling: Callable[[], Iterable[tuple[str, float]]] = tuple
        self.hardware = ''
        self._gone: frozenset[str] = frozenset()
        self._sections: dict[int, Section] = {}  # by thread
        self._stall = StallDetector()
        self._urgent = threading.Event()
        self._progress = 0
        self._unsaved = False
        self._ending = False
        self._reason = ''

    def ask_to_end(self, reason: str, gone: Iterable[str] = ()) -> None:
        """The supervisor asks the role to end; the roles `gone` do not come back."""
        self.asked, self._gone = reason, frozenset(gone)

    def is_gone(self, role: str) -> bool:
        """Whether a role has ended for good, so that it cannot be waited for."""
        return role in self._gone

    def advance(self) -> None:
        """Something was achieved; after the first time, the role counts as running."""
        self._progress += 1
        if self._progress == 1:
            self._urgent.set()

    def busy(self, activity: str = '', alone: bool = False) -> 'Section':
        """Context of work that has to come to an end; it may be nested.

        alone: the other threads would go on if it hung.
        """
        return Section(self._sections, activity, alone)

    def ending(self, reason: str = '') -> None:
        """The run is over: roles that end from now on are not started again."""
        self._ending, self._reason = True, reason
        self._urgent.set()

    def has_saved(self, everything: bool = True) -> None:
        """Whether the role could be killed now without a loss."""
        if everything == self._unsaved:
            self._unsaved = not everything
            if self._unsaved:  # The opposite would be believed for a second.
                self._urgent.set()

    def heartbeat(self) -> Heartbeat:
        sections = dict(self._sections)
        active = next((x for x in sections.values() if x.activity), None)
        alone = {thread: x for thread, x in sections.items() if x.alone}
        return Heartbeat(
            progress=self._progress,
            busy=bool(sections),
            activity=active.activity if active else '',
            doing=self._doing(active),
            hardware=self.hardware,
            unsaved=self._unsaved,
            ending=self._ending,
            stuck=round(self._stall.seconds(alone), 1),
            reason=self._reason,
        )

    def _doing(self, active: 'Section | None') -> str:
        activity = active.activity if active else ''
        seconds = time.monotonic() - active.since if active else 0.0
        return in_words(activity, seconds, self.compiling())

    def await_heartbeat(self) -> Heartbeat:
        """Blocks until the next heartbeat is due."""
        self._urgent.wait(HEARTBEAT)
        self._urgent.clear()
        return self.heartbeat()

    def working(self, function: Callable[P, R]) -> Callable[P, R]:
        """A function that does not wait for others, and each call of which is
        progress."""
        counted = self.counted(function)

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            with self.busy():
                return counted(*args, **kwargs)

        return call

    def counted(self, function: Callable[P, R]) -> Callable[P, R]:
        """A function that may wait for others, and each call of which is progress."""

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            result = function(*args, **kwargs)
            self.advance()
            return result

        return call


class Section:
    """One thread's stay inside of `Health.busy`."""

    def __init__(self, sections: dict[int, 'Section'], activity: str, alone: bool):
        self._sections = sections
        self.activity = activity
        self.alone = alone
        self.since = time.monotonic()
        self._outer: Section | None = None

    def __enter__(self) -> None:
        # Only this thread uses its key, and the operations on the dict are atomic.
        thread = threading.get_ident()
        self._outer = self._sections.get(thread)
        if self._outer is not None:
            self.activity = self.activity or self._outer.activity
        self._sections[thread] = self

    def __exit__(self, *exc: object) -> None:
        if self._outer is None:
            del self._sections[threading.get_ident()]
        else:
            self._sections[threading.get_ident()] = self._outer
