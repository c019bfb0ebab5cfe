"""Stall detector: how long one of several tasks of a process has not moved.

Of environments that share a process one may hang while the others play on. Neither the
progress of the process nor its CPU time shows that.
"""

import dataclasses
import threading
import time
from collections.abc import Mapping

from ....processes import cpu
from ..timeouts import SUSPENDED

__all__ = ['IDLE_SHARE', 'StallDetector']

IDLE_SHARE = 0.01  # of a core, for threads that only keep connections alive
LONG = 2.0  # seconds before the CPU time of a thread is read


@dataclasses.dataclass
class Stay:
    """One task of a thread, since it was seen first."""

    task: object
    since: float  # when it was last known to move
    used: float | None = None  # CPU time by then


class StallDetector:
    """Is called with every heartbeat."""

    def __init__(self) -> None:
        self._stays: dict[int, Stay] = {}
        self._looked = time.monotonic()

    def seconds(self, tasks: Mapping[int, object]) -> float:
        """For how long one thread, the worst, has been at the same task without CPU
        time of its own or of programs that this process has started.

        tasks: what each thread is at, a new object for each task.
        """
        now = time.monotonic()
        if now - self._looked > SUSPENDED:
            self._stays = {}
        self._looked = now
        self._stays = {
            thread: self._stays[thread]
            if thread in self._stays and self._stays[thread].task is task
            else Stay(task, now)
            for thread, task in tasks.items()
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
