"""Environment usage: adds up what the worker processes of one kind say they use."""

import threading
from collections.abc import Collection, Mapping
from typing import Any

from ....core.base import Metrics

__all__ = ['EnvUsage']

Figures = Mapping[str, Any]  # as from WorkerUsage
NUMBERS = ('steps', 'step_seconds', 'memory_gb', 'cpu_cores', 'cores', 'idle_cores')


class EnvUsage:
    """Totals over all workers, once per round of their messages. Thread-safe.

    A round is over when a worker reports for the second time. Workers report equally
    often, but not at the same moments: one that is missing counts with its figures of
    the round before, and is forgotten after two rounds.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._before: dict[bytes, Figures] = {}
        self._round: dict[bytes, Figures] = {}

    def put(self, worker: bytes, figures: Figures) -> Metrics:
        """Takes the figures of a worker: metrics if a round is over, else {}."""
        # What does not fit fails for the worker that has sent it, and is not kept.
        numbers = {name: float(figures[name]) for name in NUMBERS}
        known = {**numbers, 'host': str(figures['host'])}
        with self._lock:
            metrics: Metrics = {}
            if worker in self._round:
                metrics = _totals({**self._before, **self._round})
                self._before, self._round = self._round, {}
            self._round[worker] = known
            return metrics

    def leave(self, worker: bytes) -> None:
        """Forgets a worker that ends."""
        with self._lock:
            self._before.pop(worker, None)
            self._round.pop(worker, None)


def _totals(workers: Mapping[bytes, Figures]) -> Metrics:
    total = lambda name: sum(x[name] for x in workers.values())
    metrics = {
        'workers': len(workers),
        'memory_gb': total('memory_gb'),
        'cpu_cores': total('cpu_cores'),
        'idle_cores': _idle_cores(workers.values()),
    }
    if steps := total('steps'):
        metrics['step_ms'] = 1000 * total('step_seconds') / steps
    return metrics


def _idle_cores(workers: Collection[Figures]) -> float:
    """Of all machines, each of which is seen by its workers.

    Of a machine with many cores a container may use a few, and these may all be busy.
    """
    total = 0.0
    for host in {x['host'] for x in workers}:
        there = [x for x in workers if x['host'] == host]
        idle = sum(x['idle_cores'] for x in there) / len(there)
        left = max(x['cores'] for x in there) - sum(x['cpu_cores'] for x in there)
        total += max(0.0, min(idle, left))
    return total
