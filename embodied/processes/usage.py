"""Usage: memory and CPU time of this process, and of those that it has started."""

import time
from collections.abc import Callable

import psutil

from ..core.base import Metrics
from . import cpu, memory

__all__ = ['UsageMeter']

GIGABYTE = 1 << 30
SHORTEST = 0.5  # seconds between two readings: CPU time is counted in hundredths
SHARE = 0.005  # of the time that readings may take: some 35 ms per GB of memory


class UsageMeter:
    """Reads what is used now, and the CPU time since the reading before, in cores.

    on: whether there is anything to read. device_memory: metrics of an agent about the
    memory of its devices, in gigabytes.
    """

    def __init__(
        self, on: bool = True, device_memory: Callable[[], Metrics] = dict
    ) -> None:
        self._on = on
        self._device_memory = device_memory
        self._process = psutil.Process()
        self._time, self._pause = time.monotonic(), SHORTEST
        self._own, self._children = time.process_time(), 0.0
        if on:
            self._children = self._cpu_of(self._process.children(recursive=True))

    def __call__(self) -> Metrics:
        """Metrics; none so soon after the last ones that they would mean nothing, or
        cost too much."""
        begin = time.monotonic()
        seconds = begin - self._time
        if not self._on or seconds < self._pause:
            return {}
        before = self._own, self._children
        # At once, since finding the children takes CPU time, too.
        self._time, self._own = begin, time.process_time()
        children = self._process.children(recursive=True)
        self._children = self._cpu_of(children)
        metrics = {
            'memory_gb': memory.used_by(self._process) / GIGABYTE,
            'cpu_cores': (self._own - before[0]) / seconds,
            'children_memory_gb': _memory_of(children) / GIGABYTE,
            'children_cpu_cores': max(0.0, self._children - before[1]) / seconds,
            **self._device_memory(),
        }
        self._pause = max(SHORTEST, (time.monotonic() - begin) / SHARE)
        return metrics

    def _cpu_of(self, children: list[psutil.Process]) -> float:
        """Seconds of processes that run, and of those that have ended."""
        times = self._process.cpu_times()
        ended = times.children_user + times.children_system
        return ended + sum(map(cpu.of_process, children))


def _memory_of(children: list[psutil.Process]) -> int:
    total = 0
    for child in children:
        try:
            total += memory.used_by(child)
        except psutil.NoSuchProcess:
            continue  # ended since it was listed
    return total
