"""Hang detector: whether a process is hung or only slow."""

import time
from collections.abc import Callable

from ..timeouts import ROLE_SILENT
from .health import Heartbeat
from .stall import IDLE_SHARE

__all__ = ['HangDetector']


class HangDetector:
    """A role is hung if for `timeout` seconds it is busy, makes no progress and uses
    no CPU time, and neither do the programs that it has started. It is also hung if
    one of several independent tasks, such as environments, stands still for so long.

    Waiting for other roles, compiling and saving may take any time, but only as long
    as heartbeats arrive: they stop when the process is stopped or a library holds the
    GIL.
    """

    def __init__(self, timeout: float):
        self._timeout = timeout
        self._heartbeat = Heartbeat()
        self.reset()

    def reset(self) -> None:
        """Starts again: with a new process, or after a time without a watch."""
        self._heard = self._since = time.monotonic()
        self._cpu = 0.0

    def hear(self, heartbeat: Heartbeat) -> None:
        self._heard = time.monotonic()
        excused = bool(heartbeat.activity) or not heartbeat.busy
        if excused or heartbeat.progress != self._heartbeat.progress:
            self._since = self._heard
        self._heartbeat = heartbeat

    def hung(self, cpu_seconds: Callable[[], float]) -> bool:
        """cpu_seconds: CPU time of the process and of those that it has started."""
        if 0 < self._timeout < self._heartbeat.stuck:
            return True
        now = time.monotonic()
        busy = self._heartbeat.busy and not self._heartbeat.activity
        if not self._timeout or not (busy or now - self._heard > ROLE_SILENT):
            return False
        cpu = cpu_seconds()
        if abs(cpu - self._cpu) > IDLE_SHARE * (now - self._since):
            self._since, self._cpu = now, cpu
        return now - self._since > self._timeout
