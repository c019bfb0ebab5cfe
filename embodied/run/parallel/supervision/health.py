"""Health: what a role tells its supervisor about itself, without ever waiting."""

import functools
import threading
from collections.abc import Callable
from types import TracebackType
from typing import NamedTuple, ParamSpec, TypeVar

from .stall import StallDetector

__all__ = ['COMPILING', 'SAVING', 'Heartbeat', 'Health', 'counted', 'health', 'working']

P = ParamSpec('P')
R = TypeVar('R')

COMPILING, SAVING = 'compiling', 'saving'  # work that may take long without a sign

HEARTBEAT_SECONDS = 1.0  # between two beats, when nothing urgent happens


class Heartbeat(NamedTuple):
    """One sign of life."""

    progress: int = 0  # any measure of what was achieved; only its changes count
    busy: bool = False  # inside of work that has to come to an end
    activity: str = ''  # COMPILING or SAVING, if that is what it does
    unsaved: bool = False  # something would be lost if it was killed now
    ending: bool = False  # the role has decided that the run is over
    stuck: float = 0.0  # seconds that one of several works has not moved
    reason: str = ''  # why the run is over, if it is


class Health:
    """Filled by the threads of a role, read by the one that sends the beats.

    A role is hung if it stays inside of `busy` without progress and without using a
    processor. Waiting for somebody else therefore belongs outside of it.
    """

    def __init__(self) -> None:
        self._sections: dict[int, Section] = {}  # by thread
        self._stall = StallDetector()
        self._urgent = threading.Event()
        self.reset()

    def reset(self) -> None:
        """When another role begins in the same process."""
        self._progress = 0
        self._unsaved = False
        self._ending = False
        self._reason = ''
        self.asked = ''  # why the launcher wants the role to end, if it does

    def advance(self) -> None:
        """Something was achieved; after the first time, the role counts as running."""
        self._progress += 1
        if self._progress == 1:
            self._urgent.set()

    def busy(self, activity: str = '', alone: bool = False) -> 'Section':
        """Context of work that has to come to an end; it may be nested.

        alone: nobody in this process would stop if it hung.
        """
        return Section(self._sections, activity, alone)

    def ending(self, reason: str = '') -> None:
        """The run is over: whoever ends from now on need not be started again."""
        self._ending, self._reason = True, reason
        self._urgent.set()

    def has_saved(self, everything: bool = True) -> None:
        """Whether the role could be killed now without a loss."""
        if everything == self._unsaved:
            self._unsaved = not everything
            if self._unsaved:  # Nobody shall believe the opposite for a second.
                self._urgent.set()

    def heartbeat(self) -> Heartbeat:
        sections = dict(self._sections)
        activities = (section.activity for section in sections.values())
        alone = {thread: x for thread, x in sections.items() if x.alone}
        return Heartbeat(
            progress=self._progress,
            busy=bool(sections),
            activity=next(filter(None, activities), ''),
            unsaved=self._unsaved,
            ending=self._ending,
            stuck=round(self._stall.seconds(alone), 1),
            reason=self._reason,
        )

    def await_heartbeat(self) -> Heartbeat:
        """Blocks until the next heartbeat is due."""
        self._urgent.wait(HEARTBEAT_SECONDS)
        self._urgent.clear()
        return self.heartbeat()


class Section:
    """One thread's stay inside of `Health.busy`."""

    def __init__(self, sections: dict[int, 'Section'], activity: str, alone: bool):
        self._sections = sections
        self.activity = activity
        self.alone = alone
        self._outer: Section | None = None

    def __enter__(self) -> None:
        # Only this thread uses its key, and the operations on the dict are atomic.
        thread = threading.get_ident()
        self._outer = self._sections.get(thread)
        if self._outer is not None:
            self.activity = self.activity or self._outer.activity
        self._sections[thread] = self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._outer is None:
            del self._sections[threading.get_ident()]
        else:
            self._sections[threading.get_ident()] = self._outer


def working(function: Callable[P, R]) -> Callable[P, R]:
    """A function that does not wait for others, and each call of which is progress."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        with health().busy():
            return counted(function)(*args, **kwargs)

    return call


def counted(function: Callable[P, R]) -> Callable[P, R]:
    """A function that may wait for others, and each call of which is progress."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        result = function(*args, **kwargs)
        health().advance()
        return result

    return call


@functools.cache
def health() -> Health:
    """Those of this process."""
    return Health()
