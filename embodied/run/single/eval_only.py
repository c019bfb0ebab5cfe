"""Evaluation of a trained agent, without learning."""

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

from ...clock import LocalClock
from ...core import base
from ...core.checkpoint import load_part_and_step
from ...logging import ScoreFile
from ...processes.signals import StopSignals
from ...processes.usage import UsageMeter
from ..shared.activities import show_compiling
from ..shared.episode_statistics import Episodes
from ..shared.meters import Speed, moving
from ..shared.settings import Settings
from .evaluation import Evaluation
from .learning import open_driver

__all__ = ['EvalLoop', 'eval_only']


def eval_only(
    make_agent: Callable[[], base.Agent],
    make_env: Callable[[int], base.Env],
    make_logger: Callable[[], base.Logger],
    args: Mapping[str, Any],
) -> base.Metrics:
    """Plays eval_eps episodes in each of run.envs environments, or less if run.steps,
    run.duration or a stop signal ends it; returns the mean score and length.

    The agent comes from run.from_checkpoint, else from the newest save in the logdir.
    Metrics are logged at the step at which it was saved.
    """
    settings = Settings.read(args)
    with contextlib.ExitStack() as stack:
        signals = stack.enter_context(StopSignals())
        return EvalLoop(
            settings, signals, stack, make_agent, make_env, make_logger
        ).run()


class EvalLoop:
    """Steps an evaluation until it ends. stack: closes what the loop has opened."""

    def __init__(
        self,
        settings: Settings,
        signals: StopSignals,
        stack: contextlib.ExitStack,
        make_agent: Callable[[], base.Agent],
        make_env: Callable[[int], base.Env],
        make_logger: Callable[[], base.Logger],
    ):
        self.settings = settings
        self.signals = signals
        self.agent = make_agent()
        self.logger = make_logger()
        stack.callback(self.logger.close)
        show_compiling(self.logger, self.agent)
        scores = ScoreFile(settings.logdir, self.logger)
        stack.callback(scores.close)
        self.evaluation = Evaluation(
            self.agent,
            open_driver(make_env, settings.envs, settings, stack, fits=True),
            Episodes(self.logger, scores, prefix='eval', is_eval=True),
            settings.eval_eps,
        )
        self.speed = Speed()
        self.usage = UsageMeter(
            settings.usage, getattr(self.agent, 'device_memory', dict)
        )
        self.should_log = LocalClock(settings.log_every)
        self.time_over = LocalClock(settings.duration)

    def run(self) -> base.Metrics:
        self.load_agent()
        summary = None
        while summary is None and not self.interrupted():
            summary = self.evaluation.step()
            if self.should_log():
                self.log()
        summary = summary or self.evaluation.summary()
        self.logger.add(summary, 'eval')
        self.log(is_last=True)
        return summary

    def load_agent(self) -> None:
        settings = self.settings
        if settings.from_checkpoint:
            source, regex = settings.from_checkpoint, settings.from_checkpoint_regex
        else:
            source, regex = str(settings.checkpoints), None
        data, step = load_part_and_step(source, 'agent', settings.trust)
        self.agent.load(data, regex=regex)
        self.logger.step.load(step)

    def interrupted(self) -> bool:
        return (
            self.signals.received is not None
            or self.evaluation.steps >= self.settings.steps
            or self.time_over()
        )

    def log(self, is_last: bool = False) -> None:
        speeds = {'env': self.speed(self.evaluation.steps)}
        self.logger.add(moving(speeds) if is_last else speeds, 'fps')
        self.logger.add(self.usage(), 'usage')
        self.logger.write()
