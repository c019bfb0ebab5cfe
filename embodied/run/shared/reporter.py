"""Reporter: owns a report stream and the carry that follows it within one report."""

import contextlib
import itertools
from collections.abc import Callable, Iterable
from typing import Any

from ...core import base
from .batches import Batches
from .meters import Averages
from .settings import Settings

__all__ = ['Reporter']


class Reporter:
    """Reports on a stream of its own, so that training is not affected.

    A report takes `report_batches` sequences, each as `consec_report` batches in a
    row, so that the stream is at the start of a sequence before and after it.
    """

    def __init__(
        self, agent: base.Agent, stream: Iterable[base.Batch], settings: Settings
    ):
        self._agent = agent
        self._batch_size = settings.batch_size
        self._consec = settings.consec_report
        self._count = settings.consec_report * settings.report_batches
        self._batches = Batches(agent, stream)

    def report(
        self,
        working: Callable[
            [], contextlib.AbstractContextManager[None]
        ] = contextlib.nullcontext,
    ) -> base.Metrics:
        """Averages over all batches; of pictures the last. Fewer if the stream ends.

        working: context of each call of the agent, which excludes waiting for batches.
        """
        averages = Averages()
        carry = self._agent.init_report(self._batch_size)
        for batch in itertools.islice(self._batches, self._count):
            with working():
                carry, metrics = self._agent.report(carry, batch)
            averages.add(metrics)
        return averages.result()

    def save(self) -> dict[str, Any]:
        return {'batches': self._batches.save()}

    def load(self, data: dict[str, Any]) -> None:
        # Reports of version 0.1.0 had a carry that went on from one to the next, and
        # may have ended within a sequence. Then a fresh one begins.
        if 'carry' not in data or self._consec == 1:
            self._batches.load(data['batches'])
