"""Logger role: writes the metrics of all roles and of episodes at one step."""

import contextlib
import queue
import threading
from collections.abc import Callable, Mapping
from typing import Any

from ....core import base
from ....core.files import storage_errors
from ....logging import ScoreFile
from ....processes.signals import StopSignals
from ....processes.usage import UsageMeter
from ...shared.episode_statistics import Episodes
from .. import protocol
from ..context import RoleContext
from ..pickling import unpack
from ..reference_calls import LoggerCalls
from ..saves.coordinator import RoleSaves
from ..serving import Chore, serve
from ..supervision.health import Health
from .episode_tracker import EpisodeTracker
from .metrics_buffer import MetricsBuffer

__all__ = ['LoggerService', 'parallel_logger']

FINISHED = 'finished'


def parallel_logger(
    make_logger: Callable[[], base.Logger] | bytes,
    args: Mapping[str, Any],
    health: Health | None = None,
) -> str:
    """Serves the logger until the run ends, then writes and saves.

    Returns the name of a signal that came before the end, or ''.
    """
    context = RoleContext.of(args, health, name='logger')
    settings, working = context.settings, context.health.working
    wrap = context.timeline.wrap
    server = context.make_server(settings.logger_addr, 'logger')
    events: queue.SimpleQueue = queue.SimpleQueue()
    with contextlib.ExitStack() as stack:
        stack.enter_context(storage_errors(settings.logdir))
        # Until the last save is made, which a signal must not interrupt.
        signals = stack.enter_context(StopSignals(events.put))
        logger = unpack(make_logger)()
        stack.callback(logger.close)
        scores = ScoreFile(settings.logdir, logger)
        stack.callback(scores.close)
        service = LoggerService(logger, scores, context, lambda: events.put(FINISHED))
        saves = RoleSaves('logger', service, context)
        calls = LoggerCalls(service) if settings.transport == 'portal' else service
        for name in protocol.LOGGER:
            handler = getattr(calls, name, None) or getattr(service, name)
            server.bind(name, wrap(name, working(handler)), once=True)
        server.bind(protocol.SAVE, saves.save)
        stack.callback(server.close)
        chore = Chore(settings.log_every, wrap('write', working(service.write)))
        reason = serve(server, [chore], events)
        service.write(last=True)
        saves.save()
    return '' if reason == FINISHED else signals.received or ''


class LoggerService:
    """Serves the methods of the protocol, and writes one line at a time.

    Messages hold the number of committed environment steps. The largest number is the
    step of the next line, so a lost message does not distort it.
    """

    def __init__(
        self,
        logger: base.Logger,
        scores: ScoreFile,
        context: RoleContext,
        on_finish: Callable[[], Any] = lambda: None,
    ):
        self._logger = logger
        self._settings = context.settings
        self._on_finish = on_finish
        self._usage = UsageMeter(context.settings.usage)
        self._metrics = MetricsBuffer(int(logger.step))
        self._step_known = True
        self._lock = threading.Lock()  # of the trackers
        train = Episodes(self._metrics, scores, 'episode')
        evaluation = Episodes(self._metrics, scores, 'eval', True)
        self._train = EpisodeTracker('episode', train)
        self._evaluation = EpisodeTracker('eval', evaluation)

    @property
    def steps(self) -> int:
        """Committed environment steps, as of the latest message."""
        return self._metrics.step

    @property
    def counters(self) -> dict[str, int]:
        """Counters of a save, for the manifest."""
        return {'logger_step': self.steps}

    def add(self, metrics: base.Metrics, prefix: str, steps: int) -> None:
        """Takes metrics of any role; `steps` is 0 if it does not know the number."""
        self._advance(steps)
        self._metrics.put(metrics, prefix)

    def tran(
        self,
        transitions: base.Batch,
        envids: base.Array,
        is_eval: base.Array,
        steps: int,
    ) -> None:
        """Takes transitions, those of each environment in order."""
        self._advance(steps)
        with self._lock:
            for tracker, rows in ((self._train, ~is_eval), (self._evaluation, is_eval)):
                if rows.any():
                    chosen = {k: v[rows] for k, v in transitions.items()}
                    tracker.follow(chosen, envids[rows])

    def finish(self, steps: int) -> None:
        """Takes note that the run has ended, with `steps` committed steps."""
        self._advance(steps)
        self._on_finish()

    def write(self, last: bool = False) -> None:
        """Writes what has arrived since the last write. Not thread-safe."""
        if not self._step_known and not last:
            return  # Lines at the step of the last save would go back in time.
        with self._lock:
            for tracker in (self._train, self._evaluation):
                tracker.drop_silent(self._settings.episode_timeout)
                self._metrics.add(tracker.losses(), tracker.prefix)
        self._metrics.put(self._usage(), 'usage/logger')
        self._metrics.move_to(self._logger)
        self._logger.write()

    def save(self) -> dict[str, Any]:
        # Without episodes: when all roles restart, environments start new ones.
        return {'step': self.steps}

    def load(self, data: dict[str, Any]) -> None:
        self._metrics.advance(data['step'])
        self._step_known = False

    def _advance(self, steps: int) -> None:
        self._metrics.advance(steps)
        self._step_known |= steps > 0
