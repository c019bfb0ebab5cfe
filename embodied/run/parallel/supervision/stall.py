"""Stall detector: how long one of several works of a process has not moved.

Of environments that share a process one may hang while the others play on, which
neither the progress of the process nor its processor time can tell.
"""

import dataclasses
import threading
import time
from collections.abc import Mapping

from ....processes import cpu

__all__ = ['IDLE_SHARE', 'StallDetector']

IDLE_SHARE = 0.01  # of a core, for threads that only keep connections alive
LONG = 2.0  # seconds, before which nobody looks closer
SUSPENDED = 5.0  # seconds between two looks if nobody could move


@dataclasses.dataclass
class Stay:
    """One piece of work of a thread, as far as we have watched it."""

    work: object
    since: float  # when it was last known to move
    used: float | None = None  # processor time by then


class StallDetector:
    """Told at every heartbeat what the threads are at."""

    def __init__(self) -> None:
        self._stays: dict[int, Stay] = {}
        self._looked = time.monotonic()

    def seconds(self, works: Mapping[int, object]) -> float:
        """For how long the thread that stands still the longest has been at the same
        work without using a processor, itself or through programs that we started.

        works: what each thread is at, a new object for each piece of it.
        """
        now = time.monotonic()
        if now - self._looked > SUSPENDED:
            self._stays = {}
        self._looked = now
        self._stays = {
            thread: self._stays[thread]
            if thread in self._stays and self._stays[thread].work is work
            else Stay(work, now)
            for thread, work in works.items()
        }
        long = {k: v for k, v in self._stays.items() if now - v.since > LONG}
        if long:
            self._look_closer(long, now)
        return max((now - stay.since for stay in long.values()), default=0.0)

    def _look_closer(self, stays: Mapping[int, Stay], now: float) -> None:
        others = cpu.of_children()
        natives = {thread.ident: thread.native_id for thread in threading.enumerate()}
        for ident, stay in stays.items():
            used = others + cpu.of_thread(natives.get(ident) or 0)
            moved = stay.used is None or (
                abs(used - stay.used) > IDLE_SHARE * (now - stay.since)
            )
            if moved:
                stay.since, stay.used = now, used
