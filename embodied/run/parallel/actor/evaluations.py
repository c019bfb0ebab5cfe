"""Evaluations: when the workers for evaluation play, and which of them do."""

import threading

from ....core import base

__all__ = ['Evaluations']


class Evaluations:
    """An evaluation is due once in every period of `every` environment steps.

    Workers for evaluation wait in `await_due`, in a thread each. A worker with the same
    first environment as an earlier one replaces it: the earlier one is believed dead.
    """

    def __init__(self, every: int):
        self._every = every
        self._change = threading.Condition()  # of the fields below
        self._steps: int | None = None  # in replay, None before its first answer
        self._workers: dict[int, bytes] = {}  # ids by first environment
        self._over = False

    def await_due(
        self, worker_id: base.Array, envid: int, period: int
    ) -> tuple[int, bool]:
        """Blocks until a period after `period` begins: its number and False, or any
        number and True if the worker is replaced or no evaluation will follow."""
        name = worker_id.tobytes()
        replaced = lambda: self._workers.get(envid) != name
        with self._change:
            self._workers[envid] = name
            self._change.notify_all()
            self._change.wait_for(
                lambda: self._over or replaced() or self._period() > period
            )
            return self._period(), self._over or replaced()

    def advance(self, steps: int) -> None:
        """Replay has committed so many steps."""
        with self._change:
            before = self._period()
            self._steps = steps
            if self._period() != before:
                self._change.notify_all()

    def leave(self, worker_id: base.Array) -> None:
        """A worker ends."""
        name = worker_id.tobytes()
        with self._change:
            self._workers = {k: v for k, v in self._workers.items() if v != name}
            self._change.notify_all()

    def stop(self) -> None:
        """No evaluation will follow."""
        with self._change:
            self._over = True
            self._change.notify_all()

    def await_empty(self, timeout: float) -> bool:
        """Blocks until all workers have left; False after `timeout` seconds."""
        with self._change:
            return self._change.wait_for(lambda: not self._workers, timeout)

    def _period(self) -> int:
        """Number of the current one; -1 before the first answer of replay."""
        return -1 if self._steps is None else self._steps // self._every
