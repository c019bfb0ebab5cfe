"""Lease: where the loop of a server runs, at home or in the worker of a busy method.

To hand a request to a worker and to wake that up takes about as long as all the rest
that a server does for a small call. So the loop goes to where the calls go:

    home   the server's own thread runs the loop, workers run the handlers
    lent   one worker runs the loop and, between its turns, its own handler; the thread
           at home sleeps, and takes the loop back if a call keeps it waiting

Every handler runs in the thread of its method either way: its calls stay in order, and
whatever belongs to that thread stays with it.
"""

import threading
import time
from collections.abc import Callable

from .loop import Loop
from .timer import Timer

__all__ = ['Lease', 'Tempo', 'Visit']

QUICK = 0.0003  # seconds of a call that may run between turns of the loop
PATIENCE = 0.005  # seconds that a call may keep the loop waiting
FIRST_RUN, LAST_RUN = 100, 10_000  # quick calls until the loop is lent
SLOW_COST = 20  # quick calls that one outweighs which was not
UNUSED = 100  # turns of the loop without a call until it goes home


class Tempo:
    """Whether the calls of a method are quick, as far as its worker has seen."""

    def __init__(self) -> None:
        self._run = 0
        self._needed = FIRST_RUN

    @property
    def is_quick(self) -> bool:
        return self._run >= self._needed

    @property
    def is_slow(self) -> bool:
        return not self._run

    def note(self, seconds: float) -> None:
        """Takes note of a call."""
        if seconds < QUICK:
            self._run = min(self._run + 1, self._needed)
        elif seconds < PATIENCE:
            self._run = max(self._run - SLOW_COST, 0)
        else:
            self._run = 0

    def distrust(self) -> None:
        """The loop had to be taken back: it takes longer until it is lent again."""
        self._run = 0
        self._needed = min(2 * self._needed, LAST_RUN)


class Visit:
    """A stay of the loop with a worker.

    `serve` runs calls that wait for the worker and says whether there are more.
    """

    def __init__(self, tempo: Tempo, serve: Callable[[], bool]) -> None:
        self.tempo = tempo
        self.serve = serve
        self.unused = 0  # turns of the loop since the last call


class Lease:
    """Moves a loop between the thread at home, which calls `run`, and workers."""

    def __init__(self, loop: Loop) -> None:
        self.visit: Visit | None = None  # None at home; for those in the loop
        self._loop = loop
        self._lock = threading.Lock()  # of whose the loop is, and of all that follows
        self._away: float | None = None  # since when the loop waits for its worker
        self._timer = Timer()
        self._ringing = False  # the timer is set
        self._error: Exception | None = None  # that ended the loop at a worker

    # At home.

    def run(self) -> None:
        """Runs the loop until it is stopped, wherever it is in between."""
        while not self._loop.stopped:
            self._loop.run()
            while self.visit is not None:
                self._watch()
            if self._error is not None:
                raise self._error

    def offer(self, visit: Visit) -> None:
        """Leaves the loop to whoever accepts the visit; in the loop."""
        with self._lock:
            self.visit = visit
            self._loop.leave()
            self._depart()

    # At the worker.

    def accept(self, visit: Visit) -> None:
        """Runs the loop until it goes home, unless the visit is over already."""
        with self._lock:
            if self.visit is not visit:
                return
            self._away = None
            self._loop.claim()
        try:
            self._loop.run()
        except Exception as e:  # noqa: BLE001 - raised at home
            self._error = e
        finally:
            self.end()

    def begin_call(self) -> None:
        """The worker leaves the loop alone while it calls its handler."""
        with self._lock:
            self._depart()

    def end_call(self) -> bool:
        """The handler has returned; whether the worker still has the loop.

        Not if it was taken back meanwhile, nor if calls have become slow.
        """
        with self._lock:
            if not self._loop.inside:
                return False
            assert self.visit is not None and self._away is not None
            tempo = self.visit.tempo
            tempo.note(time.monotonic() - self._away)
            self.visit.unused = 0
            self._away = None
            if tempo.is_slow:
                self._go_home()
            return not tempo.is_slow

    def skip(self) -> None:
        """The loop has turned without a call for the worker."""
        assert self.visit is not None
        self.visit.unused += 1
        if self.visit.unused > UNUSED:
            self.end()

    def end(self) -> None:
        """Sends the loop home, if the worker has it."""
        with self._lock:
            if self._loop.inside:
                self._go_home()

    # Anywhere.

    def wake(self) -> None:
        """Makes the loop turn once, so that its thread looks what has changed."""
        self._loop.call(lambda: None)

    def _depart(self) -> None:
        self._away = time.monotonic()
        if not self._ringing:  # Else it rings earlier, and is set again then.
            self._ringing = True
            self._timer.set(PATIENCE)

    def _go_home(self) -> None:
        self.visit = self._away = None
        self._loop.leave()
        self._timer.set(0.0)

    def _watch(self) -> None:
        """Sleeps until the loop comes home, or takes it back."""
        self._timer.wait()
        with self._lock:
            self._ringing = False
            if self._away is None:
                return
            left = self._away + PATIENCE - time.monotonic()
            if left > 0:
                self._ringing = True
                self._timer.set(left)
            else:
                assert self.visit is not None
                self.visit.tempo.distrust()
                self.visit = self._away = None
                self._loop.claim()
