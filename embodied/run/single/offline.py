"""Training from recorded data: updates only, with evaluations in between."""

import contextlib
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from ...core import base
from ...core.checkpoint import Checkpoint
from ..shared.episode_statistics import Episodes
from ..shared.log_callback import OnLog
from ..shared.outcome import UPDATES, Outcome
from ..shared.settings import Settings
from .evaluation import Evaluation
from .learning import LearningLoop, Makers, open_driver, run_to_end
from .schedule import Schedule

__all__ = ['OfflineLoop', 'OfflineSettings', 'offline']

ENDLESS = 10**10  # updates


def offline(
    make_agent: Callable[[], base.Agent],
    make_replay: Callable[[], base.Replay],
    make_env_eval: Callable[[int], base.Env] | None,
    make_stream: Callable[[base.Replay, base.Mode], base.Stream],
    make_logger: Callable[[], base.Logger],
    args: Mapping[str, Any],
    on_log: OnLog | None = None,
) -> Outcome:
    """Trains on what the replay holds until run.updates, run.duration or a stop signal;
    resumes a run that has a save.

    With evaluation environments it plays eval_eps episodes in each of them at the
    start, every eval_every updates and at the end. The logger's step counts updates.
    on_log: is called with each log, and may stop the run as well.
    """
    settings = OfflineSettings.read(args)
    assert isinstance(settings, OfflineSettings)
    if not settings.eval_envs:
        make_env_eval = None
    parts = make_agent, make_replay, make_env_eval, make_stream, make_logger
    makers = Makers(*parts, on_log)
    return run_to_end(
        settings, lambda signals, stack: OfflineLoop(settings, signals, stack, makers)
    )


@dataclasses.dataclass(frozen=True)
class OfflineSettings(Settings):
    """Settings of a run whose steps are its updates."""

    updates: int = 0

    @property
    def last_step(self) -> int:
        return self.updates or ENDLESS

    @property
    def step_limit(self) -> str:
        return UPDATES

    def _smallest(self) -> dict[str, float]:
        return {**super()._smallest(), 'updates': 0}


class OfflineLoop(LearningLoop):
    """Each turn is one update or, while an evaluation is due, one step of its
    environments."""

    def open_environments(self, makers: Makers, stack: contextlib.ExitStack) -> None:
        settings = self.settings
        self.evaluation: Evaluation | None = None
        self.schedule = Schedule(settings.eval_every)
        self.evaluated = Newest()
        if makers.env is None:
            return
        self.evaluation = Evaluation(
            self.agent,
            open_driver(makers.env, settings.eval_envs, settings, stack, fits=True),
            Episodes(self.logger, self.scores, prefix='eval', is_eval=True),
            settings.eval_eps,
        )

    def make_checkpoint(self) -> Checkpoint:
        checkpoint = super().make_checkpoint()
        # An evaluation that was running begins again when the run is continued.
        checkpoint.add('schedule', self.schedule)
        checkpoint.add('evaluated', self.evaluated)
        return checkpoint

    def steps_needed(self, replay: base.Replay) -> int:
        return 0  # They are there.

    def finished(self) -> bool:
        if self.signals.received:
            return True
        return self.limit_reached() and not self.evaluation_due()

    def limit_reached(self) -> bool:
        return self.progress.steps_reached or self.progress.time_over

    def evaluation_due(self) -> bool:
        if self.evaluation is None:
            return False
        step = self.progress.steps
        due = self.evaluation.running or self.schedule.due(step)
        return due or (self.limit_reached() and self.evaluated.step < step)

    def take_turn(self) -> None:
        if self.evaluation_due():
            self.evaluate()
        else:
            self.learn()
            self.progress.played(1)

    def evaluate(self) -> None:
        assert self.evaluation is not None
        summary = self.evaluation.step()
        if summary is not None:
            self.logger.add(summary, 'eval')
            self.schedule.done(self.progress.steps)
            self.evaluated.step = self.progress.steps


class Newest:
    """Step of the newest evaluation that is complete; -1: there is none."""

    def __init__(self) -> None:
        self.step = -1

    def save(self) -> int:
        return self.step

    def load(self, data: int) -> None:
        self.step = data
