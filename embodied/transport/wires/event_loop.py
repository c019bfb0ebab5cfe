"""Event loop: the I/O thread of a server, which blocks in one poll for everything."""

import math
import select
import threading
import time
from collections.abc import Callable
from typing import Protocol

from .wake_queue import WakeQueue

__all__ = ['IN', 'OUT', 'Clock', 'Loop']

LONGEST = 3600.0  # seconds of one poll; the kernel takes 24 days at most
IN, OUT = select.POLLIN, select.POLLOUT  # the same numbers for epoll


class Clock(Protocol):
    """Something with deadlines."""

    def deadline(self) -> float:
        """When `run_due` has something to do, as time.monotonic(); inf for never."""

    def run_due(self, now: float) -> None:
        """Does what is due."""


class Loop:
    """Calls functions when descriptors are ready, clocks are due, or `call` was used.

    All methods but `call` and `stop` belong to the thread that calls `run`.
    """

    def __init__(self) -> None:
        self._calls = WakeQueue()
        self._handlers: dict[int, Callable[[int], None]] = {}
        self._clocks: list[Clock] = []
        self._hooks: list[Callable[[], bool]] = []  # before every poll
        self._stopped = False
        self._thread = 0
        self._epoll = select.epoll() if hasattr(select, 'epoll') else None
        self._poller = self._epoll or select.poll()
        self.add(self._calls.fileno(), self._run_calls)

    def call(self, fn: Callable[[], None]) -> None:
        """Runs a function in the loop; called from any thread, also in finalizers."""
        self._calls.put(fn)

    def stop(self) -> None:
        self._calls.put(self._stop)

    @property
    def inside(self) -> bool:
        """Whether the caller runs in the loop."""
        return threading.get_ident() == self._thread

    def add(self, fd: int, handler: Callable[[int], None], events: int = IN) -> None:
        """Calls `handler(events)` while the descriptor is ready."""
        self._handlers[fd] = handler
        self._poller.register(fd, events)

    def change(self, fd: int, events: int) -> None:
        self._poller.modify(fd, events)

    def remove(self, fd: int) -> None:
        del self._handlers[fd]
        self._poller.unregister(fd)

    def add_clock(self, clock: Clock) -> None:
        self._clocks.append(clock)

    def before_poll(self, hook: Callable[[], bool]) -> None:
        """Calls `hook` before every poll; that does not block if it returns True."""
        self._hooks.append(hook)

    def run(self) -> None:
        """Blocks until stopped; the loop belongs to the thread that calls this."""
        self._thread = threading.get_ident()
        while not self._stopped:
            self._turn()

    def close(self) -> None:
        if self._epoll is not None:
            self._epoll.close()

    def _turn(self) -> None:
        more, due, timeout = False, math.inf, None
        for hook in self._hooks:
            more |= hook()
        for clock in self._clocks:  # afterwards, since hooks change deadlines
            due = min(due, clock.deadline())
        if due < math.inf:
            timeout = min(max(0.0, due - time.monotonic()), LONGEST)
        for fd, events in self._poll(0.0 if more else timeout):
            handler = self._handlers.get(fd)
            if handler is not None:  # An earlier one may have removed it.
                handler(events)
        if due < math.inf and due <= (now := time.monotonic()):
            for clock in self._clocks:
                clock.run_due(now)

    def _poll(self, timeout: float | None) -> list[tuple[int, int]]:
        if self._epoll is not None:
            return self._epoll.poll(timeout)
        return self._poller.poll(None if timeout is None else 1000 * timeout)

    def _run_calls(self, events: int) -> None:
        for fn in self._calls.take():
            fn()

    def _stop(self) -> None:
        self._stopped = True
