"""Metrics buffer: metrics of all roles between two writes, at one step."""

import threading
from collections.abc import Mapping
from typing import Any

import numpy as np

from ....core import base
from ...shared.meters import Averages

__all__ = ['MetricsBuffer']


class MetricsBuffer(base.Logger):
    """Metrics by prefix and name. `step` never goes back. Thread-safe."""

    def __init__(self, step: int = 0):
        self.step = step
        self._lock = threading.Lock()
        self._averages: dict[str, Averages] = {}
        self._newest: dict[str, base.Metrics] = {}

    def advance(self, step: int) -> None:
        with self._lock:
            self.step = max(self.step, int(step))

    def add(self, metrics: Mapping[str, Any], prefix: str | None = None) -> None:
        """Takes single events, such as episodes. Numbers are averaged."""
        with self._lock:
            self._averages.setdefault(prefix or '', Averages()).add(metrics)

    def put(self, metrics: Mapping[str, Any], prefix: str) -> None:
        """Takes summaries and counters of a role. The newest value is kept."""
        for name, value in metrics.items():
            _check(f'{prefix}/{name}', value)
        with self._lock:
            self._newest.setdefault(prefix, {}).update(metrics)

    def move_to(self, logger: base.Logger) -> None:
        """Moves all metrics to a logger, at one step."""
        with self._lock:
            step, averages, newest = self.step, self._averages, self._newest
            self._averages, self._newest = {}, {}
        logger.step.increment(step - int(logger.step))
        for prefix, events in averages.items():
            logger.add(events.result(), prefix=prefix or None)
        for prefix, metrics in newest.items():
            logger.add(metrics, prefix=prefix or None)


def _check(name: str, value: Any) -> None:
    """Refuses a value that could not be written, with an error for its sender."""
    if not isinstance(value, str) and np.asarray(value).dtype.hasobject:
        raise ValueError(
            f"Metric '{name}' is {value!r}. Log numbers, strings or numeric arrays."
        )
