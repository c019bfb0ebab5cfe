"""Aggregate: what all roles say between two writes, under one step."""

import threading
from collections.abc import Mapping
from typing import Any

from ...core import base
from ..meters import Averages

__all__ = ['Aggregate']


class Aggregate(base.Logger):
    """Averages numbers by name; of pictures and texts the last is kept.

    `step` never goes back. Any thread may call any method.
    """

    def __init__(self, step: int = 0):
        self.step = step
        self._lock = threading.Lock()
        self._averages: dict[str, Averages] = {}

    def advance(self, step: int) -> None:
        with self._lock:
            self.step = max(self.step, int(step))

    def add(self, metrics: Mapping[str, Any], prefix: str | None = None) -> None:
        with self._lock:
            self._averages.setdefault(prefix or '', Averages()).add(metrics)

    def move_to(self, logger: base.Logger) -> None:
        """Hands everything over to a logger, at one step."""
        with self._lock:
            step, averages = self.step, self._averages
            self._averages = {}
        logger.step.increment(step - int(logger.step))
        for prefix, metrics in averages.items():
            logger.add(metrics.result(), prefix=prefix or None)
