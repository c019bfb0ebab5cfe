"""Episode sender: the actor's transitions, films and metrics for the logger."""

import time

import numpy as np

from ....clock import LocalClock
from ....core import base
from ....core.step_keys import is_log
from ...shared.filming import Filming
from ...shared.meters import Averages, Speed
from ..outbox import Outbox

__all__ = ['EpisodeSender']

FOLLOWED = ('reward', 'is_first', 'is_last')
FULL_ROWS = 256  # transitions per message, unless an episode ends
FULL_SECONDS = 1.0  # age of the oldest of them


class EpisodeSender:
    """Sends transitions, films and metrics of one mode; never waits for the logger."""

    def __init__(
        self,
        mode: base.Mode,
        transitions: Outbox,
        metrics: Outbox,
        filming: Filming,
        log_every: float,
    ):
        self._is_eval = mode == 'eval'
        self._prefix = 'actor_eval' if self._is_eval else 'actor'
        self._film_prefix = 'eval' if self._is_eval else 'episode'
        self._transitions = transitions
        self._metrics = metrics
        self._filming = filming
        self._should_log = LocalClock(log_every)
        self._averages = Averages()
        self._row_speed, self._call_speed = Speed(), Speed()
        self._rows, self._calls, self._resets = 0, 0, 0
        self._unsent: list[base.Batch] = []  # transitions by step
        self._oldest = 0.0  # time of the first of them

    def add(
        self, trans: base.Batch, envids: base.Array, serials: base.Array, steps: int
    ) -> None:
        """Takes one step of each environment, [n, ...] per key."""
        step = {
            key: value.copy()  # A view would keep the whole message in memory.
            for key, value in trans.items()
            if key in FOLLOWED or (is_log(key) and value.ndim == 1)
        }
        step['envid'], step['serial'] = envids.copy(), serials.copy()
        if self._unsent and step.keys() != self._unsent[0].keys():
            self._send_unsent(steps)
        if not self._unsent:
            self._oldest = time.monotonic()
        self._unsent.append(step)
        if self._full(trans['is_last']):
            self._send_unsent(steps)
        film = self._filming.add(trans, envids)
        if film:
            named = {f'film/{key}': video for key, video in film.items()}
            self._metrics.put(named, self._film_prefix, steps)

    def count(self, rows: int, resets: int, metrics: base.Metrics, steps: int) -> None:
        """Counts one policy call, and sends metrics when they are due."""
        self._rows += rows
        self._calls += 1
        self._resets += resets
        self._averages.add(metrics)
        if self._should_log():
            self._metrics.put(self._summary(), self._prefix, steps)

    def close(self, steps: int) -> None:
        """Sends what was not sent yet."""
        if self._unsent:
            self._send_unsent(steps)

    def _full(self, is_last: base.Array) -> bool:
        rows = sum(len(step['envid']) for step in self._unsent)
        old = time.monotonic() > self._oldest + FULL_SECONDS
        return rows >= FULL_ROWS or old or bool(is_last.any())

    def _send_unsent(self, steps: int) -> None:
        keys = self._unsent[0].keys()
        joined = {k: np.concatenate([step[k] for step in self._unsent]) for k in keys}
        self._unsent = []
        envids = joined.pop('envid')
        is_eval = np.full(len(envids), self._is_eval)
        self._transitions.put(joined, envids, is_eval, steps)

    def _summary(self) -> base.Metrics:
        return {
            **self._averages.result(),
            'steps_per_second': self._row_speed(self._rows),
            'calls_per_second': self._call_speed(self._calls),
            'resets': self._resets,
            'dropped': self._transitions.dropped + self._metrics.dropped,
        }
