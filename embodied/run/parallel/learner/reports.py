"""Reports: reports on training and evaluation data, each from a stream of its own."""

import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple

from ....clock import GlobalClock
from ....core import base
from ...shared.meters import Allowance
from ...shared.reporter import Reporter
from ..settings import ParallelSettings
from .connections import Connections
from .fetcher import Fetcher
from .replicas import Replicas

__all__ = ['Reports']


class Report(NamedTuple):
    """One kind of report."""

    prefix: str  # of its metrics
    stream: Fetcher
    reporter: Reporter
    is_due: GlobalClock


class Reports:
    """Makes the reports of a learner.

    busy: makes the context of each call of the agent. send: sends metrics of a prefix.
    spent: the share of the time that reports take.
    """

    def __init__(
        self,
        agent: base.Agent,
        connections: Connections,
        replicas: Replicas,
        settings: ParallelSettings,
        busy: Callable[[], contextlib.AbstractContextManager[None]],
        send: Callable[[base.Metrics, str], Any],
    ):
        self._busy, self._send = busy, send
        self.spent = Allowance(settings.report_every, free=1)
        streams = {'report': connections.report, 'eval': connections.evaluation}
        self._reports = [
            Report(
                prefix,
                stream,
                Reporter(agent, stream, settings),
                replicas.clock(settings.report_every),
            )
            for prefix, stream in streams.items()
        ]

    def make_due(self) -> None:
        """Makes those that are due and have data."""
        later = self.spent.used_up
        for report in self._reports:
            if report.is_due(skip=later or not report.stream.ready):
                self._make(report)

    def make_last(self) -> None:
        """Makes all that have data."""
        for report in self._reports:
            if report.stream.ready:
                self._make(report)

    def _make(self, report: Report) -> None:
        """Sends a report, unless its stream ends before it is complete."""
        metrics: base.Metrics = {}
        with self.spent, report.stream.until_end():
            metrics = report.reporter.report(self._busy)
        if not report.stream.ended:
            self._send(metrics, report.prefix)
