"""Worker usage: what a worker process uses and how long its environments take to step,
for the actor, which adds up all workers."""

import platform
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from ....clock import LocalClock
from ....processes import cpu
from ....processes.usage import UsageMeter
from ..settings import ParallelSettings

__all__ = ['StepTimes', 'WorkerUsage']

R = TypeVar('R')


class StepTimes:
    """Number of steps and their seconds, of environments that step in many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._steps, self._seconds = 0, 0.0

    def timed(self, step: Callable[[], R]) -> Callable[[], R]:
        """The function, each call of which counts as a step."""

        def call() -> R:
            begin = time.perf_counter()
            result = step()
            seconds = time.perf_counter() - begin
            with self._lock:
                self._steps += 1
                self._seconds += seconds
            return result

        return call

    def take(self) -> tuple[int, float]:
        """Steps since the last call, and their seconds."""
        with self._lock:
            taken = self._steps, self._seconds
            self._steps, self._seconds = 0, 0.0
        return taken


class WorkerUsage:
    """Figures of this process since those before, once per run.log_every."""

    def __init__(self, settings: ParallelSettings, times: StepTimes) -> None:
        # Without a look at the clock where nothing is ever due.
        self._is_due = LocalClock(settings.log_every if settings.usage else 0.0)
        self._meter = UsageMeter(settings.usage)
        self._times = times
        self._idle, self._time = cpu.idle(), time.monotonic()

    def __call__(self) -> dict[str, float | str]:
        """Figures by name, none as long as they are not due."""
        if not self._is_due() or not (used := self._meter()):
            return {}
        steps, seconds = self._times.take()
        return {
            'steps': steps,
            'step_seconds': seconds,
            'memory_gb': used['memory_gb'] + used['children_memory_gb'],
            'cpu_cores': used['cpu_cores'] + used['children_cpu_cores'],
            'cores': cpu.count_cores(),
            'idle_cores': self._idle_cores(),
            'host': platform.node(),
        }

    def _idle_cores(self) -> float:
        """Cores' worth of time that this machine did not use since the last call."""
        before = self._idle, self._time
        self._idle, self._time = cpu.idle(), time.monotonic()
        return max(0.0, (self._idle - before[0]) / (self._time - before[1]))
