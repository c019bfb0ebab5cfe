"""Hang detector: whether a process is hung or only slow."""

import time
from collections.abc import Callable

from .health import Heartbeat
from .stall import IDLE_SHARE

__all__ = ['HangDetector']

SILENCE = 10.0  # seconds after which the last heartbeat says nothing any more


class HangDetector:
    """A role is hung if for `timeout` seconds it is in the middle of something, makes
    no progress and uses no processor, and neither do the programs that it started.

    So it is if one of several works that do not need each other, as environments do
    not, stands still for so long.

    Waiting for others, compiling and saving are said to take long. But a role that
    says nothing at all, because it is stopped or some library does not let its other
    threads run, has no excuse.
    """

    def __init__(self, timeout: float):
        self._timeout = timeout
        self._heartbeat = Heartbeat()
        self.reset()

    def reset(self) -> None:
        """Begins anew: a process has been started, or we were not there to watch."""
        self._heard = self._since = time.monotonic()
        self._cpu = 0.0

    def hear(self, heartbeat: Heartbeat) -> None:
        self._heard = time.monotonic()
        excused = bool(heartbeat.activity) or not heartbeat.busy
        if excused or heartbeat.progress != self._heartbeat.progress:
            self._since = self._heard
        self._heartbeat = heartbeat

    def hung(self, cpu_seconds: Callable[[], float]) -> bool:
        """cpu_seconds: what the process and those that it started have used so far."""
        if 0 < self._timeout < self._heartbeat.stuck:
            return True
        now = time.monotonic()
        busy = self._heartbeat.busy and not self._heartbeat.activity
        if not self._timeout or not (busy or now - self._heard > SILENCE):
            return False
        cpu = cpu_seconds()
        if abs(cpu - self._cpu) > IDLE_SHARE * (now - self._since):
            self._since, self._cpu = now, cpu
        return now - self._since > self._timeout
