"""Training in one process: acting and learning take turns, so runs can be repeated."""

import contextlib
import math
from collections.abc import Callable, Mapping
from typing import Any

from ...core import base
from ...core.checkpoint import Checkpoint
from ..shared.episode_statistics import Episodes
from ..shared.filming import Filming
from ..shared.log_callback import OnLog
from ..shared.meters import Speed
from ..shared.outcome import Outcome
from ..shared.settings import Settings
from .collector import Collector
from .learning import LearningLoop, Makers, open_driver, run_to_end

__all__ = ['TrainLoop', 'train']

FOREVER = math.inf  # seconds; environments in step with others are never silent


def train(
    make_agent: Callable[[], base.Agent],
    make_replay: Callable[[], base.Replay],
    make_env: Callable[[int], base.Env],
    make_stream: Callable[[base.Replay, base.Mode], base.Stream],
    make_logger: Callable[[], base.Logger],
    args: Mapping[str, Any],
    on_log: OnLog | None = None,
) -> Outcome:
    """Trains until run.steps, run.duration or a stop signal; resumes a run that has a
    save. on_log: is called with each log, and may stop the run as well."""
    settings = Settings.read(args)
    makers = Makers(make_agent, make_replay, make_env, make_stream, make_logger, on_log)
    return run_to_end(
        settings, lambda signals, stack: TrainLoop(settings, signals, stack, makers)
    )


class TrainLoop(LearningLoop):
    """Each turn is one update, if the steps so far have earned one, or one step of all
    environments."""

    def open_environments(self, makers: Makers, stack: contextlib.ExitStack) -> None:
        assert makers.env is not None
        settings = self.settings
        self.collector = Collector(
            self.agent,
            open_driver(makers.env, settings.envs, settings, stack),
            self.store,
            Episodes(self.logger, self.scores, prefix='episode'),
            self.progress,
            Filming(settings.film_every, settings.film_frames, FOREVER),
            self.timeline,
        )
        self.env_speed = Speed()

    def make_checkpoint(self) -> Checkpoint:
        checkpoint = super().make_checkpoint()
        checkpoint.add('collector', self.collector)
        return checkpoint

    def steps_needed(self, replay: base.Replay) -> int:
        return self.settings.minimum(replay)

    def finished(self) -> bool:
        if self.signals.received or self.progress.time_over:
            return True
        return self.progress.steps_reached and not self.work_left()

    def work_left(self) -> bool:
        """Whether there is something to do before the environments go on."""
        return self.can_learn()

    def can_learn(self) -> bool:
        return self.progress.owed > 0 and self.store.ready

    def take_turn(self) -> None:
        if self.can_learn():
            self.learn()
        else:
            self.collector.step()

    def log(self, is_last: bool = False) -> None:
        self.logger.add({'train_ratio': self.progress.train_ratio}, 'replay')
        self.logger.add({'envs': self.collector.share_of_envs()}, 'loop')
        super().log(is_last)

    def measure_speed(self) -> base.Metrics:
        """Environment steps and updates per second since the last call."""
        return {'env': self.env_speed(self.progress.steps), **super().measure_speed()}
