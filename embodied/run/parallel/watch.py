"""Watch over one process: hung, or only slow?"""

import time
from collections.abc import Callable

import psutil

from .vitals import Beat

__all__ = ['Watch', 'cpu_seconds']

SILENCE = 10.0  # seconds without a beat after which the last one says nothing any more
IDLE_SHARE = 0.01  # of a core, for threads that only keep connections alive


class Watch:
    """A role is hung if for `timeout` seconds it is in the middle of something, makes
    no progress and uses no processor, and neither do the programs that it started.

    Waiting for others, compiling and saving are said to take long. But a role that
    says nothing at all, because it is stopped or some library does not let its other
    threads run, has no excuse.
    """

    def __init__(self, timeout: float):
        self._timeout = timeout
        self._beat = Beat()
        self.reset()

    def reset(self) -> None:
        """Begins anew: a process has been started, or we were not there to watch."""
        self._heard = self._since = time.monotonic()
        self._cpu = 0.0

    def hear(self, beat: Beat) -> None:
        self._heard = time.monotonic()
        excused = bool(beat.activity) or not beat.busy
        if excused or beat.progress != self._beat.progress:
            self._since = self._heard
        self._beat = beat

    def hung(self, cpu_seconds: Callable[[], float]) -> bool:
        """cpu_seconds: what the process and those that it started have used so far."""
        now = time.monotonic()
        busy = self._beat.busy and not self._beat.activity
        if not self._timeout or not (busy or now - self._heard > SILENCE):
            return False
        cpu = cpu_seconds()
        if abs(cpu - self._cpu) > IDLE_SHARE * (now - self._since):
            self._since, self._cpu = now, cpu
        return now - self._since > self._timeout


def cpu_seconds(pid: int) -> float:
    """Used so far by a process and those that it started."""
    try:
        process = psutil.Process(pid)
        family = [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0.0
    used = 0.0
    for one in family:
        try:
            used += sum(one.cpu_times()[:4])  # user, system, and of ended children
        except psutil.NoSuchProcess:
            continue  # ended since it was listed
    return used
