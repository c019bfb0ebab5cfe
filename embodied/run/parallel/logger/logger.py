"""Logger role: brings the metrics of all roles and the episodes under one step."""

import contextlib
import queue
import threading
from collections.abc import Callable, Mapping
from typing import Any

from ....core import base
from ....core.files import storage_errors
from ....logging import ScoreFile
from ....processes.signals import StopSignals
from ...shared.episode_statistics import Episodes
from ...shared.meters import usage
from .. import protocol
from ..context import make_server
from ..pickling import unpack
from ..saves.coordinator import RoleSaves
from ..serving import Chore, serve
from ..settings import ParallelSettings
from ..supervision.health import working
from .episode_tracker import EpisodeTracker
from .metrics_buffer import MetricsBuffer

__all__ = ['LoggerService', 'parallel_logger']

FINISHED = 'finished'


def parallel_logger(
    make_logger: Callable[[], base.Logger] | bytes, args: Mapping[str, Any]
) -> str:
    """Serves the logger until the run ends, and writes what it has; a signal that came
    before that."""
    settings = ParallelSettings.read(args)
    server = make_server(settings.logger_addr, 'logger', settings)
    mail: queue.SimpleQueue = queue.SimpleQueue()
    with contextlib.ExitStack() as stack:
        stack.enter_context(storage_errors(settings.logdir))
        # To the very end: a signal must not cut off the last save.
        signals = stack.enter_context(StopSignals(mail.put))
        logger = unpack(make_logger)()
        stack.callback(logger.close)
        scores = ScoreFile(settings.logdir)
        stack.callback(scores.close)
        service = LoggerService(logger, scores, settings, lambda: mail.put(FINISHED))
        saves = RoleSaves('logger', service, settings)
        for name in protocol.LOGGER:
            server.bind(name, working(getattr(service, name)), once=True)
        server.bind(protocol.SAVE, saves.save)
        stack.callback(server.close)
        chore = Chore(settings.log_every, working(service.write))
        reason = serve(server, [chore], mail)
        service.write(last=True)
        saves.save()
    return '' if reason == FINISHED else signals.received or ''


class LoggerService:
    """Answers the calls of the protocol and writes one line at a time.

    Messages tell how many environment steps are committed. The largest number is the
    step of the next line, so lost messages cannot bend it.
    """

    def __init__(
        self,
        logger: base.Logger,
        scores: ScoreFile,
        settings: ParallelSettings,
        on_finish: Callable[[], Any] = lambda: None,
    ):
        self._logger = logger
        self._settings = settings
        self._on_finish = on_finish
        self._metrics = MetricsBuffer(int(logger.step))
        self._step_known = True
        self._lock = threading.Lock()  # of the tracks
        train = Episodes(self._metrics, scores, 'episode')
        evaluation = Episodes(self._metrics, scores, 'eval', True)
        self._train = EpisodeTracker('episode', train)
        self._evaluation = EpisodeTracker('eval', evaluation)

    @property
    def steps(self) -> int:
        """Environment steps committed, as far as anybody has said."""
        return self._metrics.step

    @property
    def counters(self) -> dict[str, int]:
        """What the manifest says about a save."""
        return {'logger_step': self.steps}

    def add(self, metrics: base.Metrics, prefix: str, steps: int) -> None:
        """Metrics of any role, which knows of `steps` committed steps or of none."""
        self._advance(steps)
        self._metrics.put(metrics, prefix)

    def tran(
        self,
        transitions: base.Batch,
        envids: base.Array,
        is_eval: base.Array,
        steps: int,
    ) -> None:
        """Rows of one step each, those of an environment in order."""
        self._advance(steps)
        with self._lock:
            for track, rows in ((self._train, ~is_eval), (self._evaluation, is_eval)):
                if rows.any():
                    chosen = {k: v[rows] for k, v in transitions.items()}
                    track.follow(chosen, envids[rows])

    def finish(self, steps: int) -> None:
        """The run has ended, with `steps` committed steps."""
        self._advance(steps)
        self._on_finish()

    def write(self, last: bool = False) -> None:
        """Writes what has arrived since the last write. Only one thread may."""
        if not self._step_known and not last:
            return  # Lines at the step of the last save would go back in time.
        with self._lock:
            for track in (self._train, self._evaluation):
                track.drop_silent(self._settings.episode_timeout)
                self._metrics.add(track.losses(), track.prefix)
        if self._settings.usage:
            self._metrics.put(usage(), 'usage/logger')
        self._metrics.move_to(self._logger)
        self._logger.write()

    def save(self) -> dict[str, Any]:
        # No episodes: a new session of the environments starts new ones.
        return {'step': self.steps}

    def load(self, data: dict[str, Any]) -> None:
        self._metrics.advance(data['step'])
        self._step_known = False

    def _advance(self, steps: int) -> None:
        self._metrics.advance(steps)
        self._step_known |= steps > 0
