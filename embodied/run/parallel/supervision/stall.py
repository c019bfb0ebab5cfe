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
class SeenTask:
    """One task of a thread, since it was seen first."""

    task: object
    since: float  # when it was last known to move
    used: float | None = None  # CPU time by then


class StallDetector:
    """Is called with every heartbeat."""

    def __init__(self) -> None:
        self._seen: dict[int, SeenTask] = {}
        self._looked = time.monotonic()

    def seconds(self, tasks: Mapping[int, object]) -> float:
        """For how long one thread, the worst, has been at the same task without CPU
        time of its own or of programs that this process has started.

        tasks: what each thread is at, a new object for each task.
        """
        now = time.monotonic()
        if now - self._looked > SUSPENDED:
            self._seen = {}
        self._looked = now
        self._seen = {
            thread: self._seen[thread]
            if thread in self._seen and self._seen[thread].task is task
            else SeenTask(task, now)
            for thread, task in tasks.items()
        }
        long = {k: v for k, v in self._seen.items() if now - v.since > LONG}
        if long:
            self._look_closer(long, now)
        return max((now - seen_task.since for seen_task in long.values()), default=0.0)

    def _look_closer(self, seen: Mapping[int, SeenTask], now: float) -> None:
        others = cpu.of_children()
        natives = {thread.ident: thread.native_id for thread in threading.enumerate()}
        for ident, seen_task in seen.items():
            used = others + cpu.of_thread(natives.get(ident) or 0)
            moved = seen_task.used is None or (
                abs(used - seen_task.used) > IDLE_SHARE * (now - seen_task.since)
            )
            if moved:
                seen_task.since, seen_task.used = now, used
