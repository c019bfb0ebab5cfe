"""Training with evaluations in between, on environments and a replay of their own."""

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

from ...core import base
from ...core.errors import ConfigError
from ...processes.signals import StopSignals
from ..shared.episode_statistics import Episodes
from ..shared.log_callback import OnLog
from ..shared.outcome import Outcome
from ..shared.replay_completion import Store
from ..shared.reporter import Reporter
from ..shared.settings import Settings
from .evaluation import Evaluation
from .learning import Makers, open_driver, run_to_end
from .schedule import Schedule
from .train import TrainLoop

__all__ = ['TrainEvalLoop', 'train_eval']


def train_eval(
    make_agent: Callable[[], base.Agent],
    make_replay_train: Callable[[], base.Replay],
    make_replay_eval: Callable[[], base.Replay],
    make_env_train: Callable[[int], base.Env],
    make_env_eval: Callable[[int], base.Env],
    make_stream: Callable[[base.Replay, base.Mode], base.Stream],
    make_logger: Callable[[], base.Logger],
    args: Mapping[str, Any],
    on_log: OnLog | None = None,
) -> Outcome:
    """Like `train`, and plays eval_eps episodes in each evaluation environment at the
    start and every eval_every steps."""
    settings = Settings.read(args)
    if not settings.eval_envs:
        raise ConfigError(
            'run.eval_envs=0 leaves nothing to evaluate in. Raise it, or choose the '
            'script train.'
        )
    makers = Makers(
        make_agent, make_replay_train, make_env_train, make_stream, make_logger, on_log
    )
    return run_to_end(
        settings,
        lambda signals, stack: TrainEvalLoop(
            settings, signals, stack, makers, make_replay_eval, make_env_eval
        ),
    )


class TrainEvalLoop(TrainLoop):
    """One more kind of turn: a step of the evaluation environments.

    Evaluations are due by steps and not by time, so that a run can be repeated.
    """

    def __init__(
        self,
        settings: Settings,
        signals: StopSignals,
        stack: contextlib.ExitStack,
        makers: Makers,
        make_replay_eval: Callable[[], base.Replay],
        make_env_eval: Callable[[int], base.Env],
    ):
        super().__init__(settings, signals, stack, makers)
        replay = make_replay_eval()
        self.eval_store = Store(replay, settings.eval_minimum(replay))
        stack.callback(self.eval_store.close)
        self.eval_reporter = Reporter(
            self.agent, makers.stream(replay, 'eval'), settings
        )
        self.evaluation = Evaluation(
            self.agent,
            open_driver(make_env_eval, settings.eval_envs, settings, stack, fits=True),
            Episodes(self.logger, self.scores, prefix='eval', is_eval=True),
            settings.eval_eps,
            self.eval_store,
        )
        self.schedule = Schedule(settings.eval_every)
        for name in ('schedule', 'evaluation', 'eval_reporter'):
            self.checkpoint.add(name, getattr(self, name))
        self.checkpoint.add('replay_eval', self.eval_store)

    def evaluation_due(self) -> bool:
        return self.evaluation.running or self.schedule.due(self.progress.steps)

    def work_left(self) -> bool:
        return super().work_left() or self.evaluation_due()

    def take_turn(self) -> None:
        if self.evaluation_due() and not self.can_learn():
            self.evaluate()
        else:
            super().take_turn()

    def evaluate(self) -> None:
        summary = self.evaluation.step()
        if summary is not None:
            self.logger.add(summary, 'eval')
            self.schedule.done(self.progress.steps)

    def report(self) -> None:
        if self.eval_store.ready:
            self.logger.add(self.eval_reporter.report(), 'eval')
        super().report()
