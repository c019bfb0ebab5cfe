"""Learning loop: what all loops of one process that train have in common."""

import contextlib
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from ...clock import GlobalClock
from ...core import base
from ...core.checkpoint import Checkpoint
from ...core.errors import CheckpointError
from ...envs.runtime.driver import Driver
from ...logging import ScoreFile, add_event
from ...processes import timeline
from ...processes.signals import StopSignals
from ...processes.usage import UsageMeter
from ..shared.activities import show_compiling
from ..shared.log_callback import LogCallback, OnLog
from ..shared.meters import Allowance, Averages, Speed, moving
from ..shared.outcome import Outcome
from ..shared.progress import Progress, announce_finished
from ..shared.replay_completion import Store
from ..shared.reporter import Reporter
from ..shared.restore import restore
from ..shared.settings import Settings
from .trainer import Trainer

__all__ = ['LearningLoop', 'Makers', 'open_driver', 'run_to_end']


class Makers(NamedTuple):
    """Factories of what a loop trains with, and what it calls with each log.

    env: None without environments.
    """

    agent: Callable[[], base.Agent]
    replay: Callable[[], base.Replay]
    env: Callable[[int], base.Env] | None
    stream: Callable[[base.Replay, base.Mode], base.Stream]
    logger: Callable[[], base.Logger]
    on_log: OnLog | None = None


def run_to_end(
    settings: Settings,
    make_loop: Callable[[StopSignals, contextlib.ExitStack], 'LearningLoop'],
) -> Outcome:
    """Runs a loop, unless the run in its folder has nothing left to do."""
    if finished := announce_finished(settings.checkpoints, 'progress', settings):
        return finished
    with contextlib.ExitStack() as stack:
        signals = stack.enter_context(StopSignals())
        return make_loop(signals, stack).run()


class LearningLoop:
    """Takes turns until it is finished. Between two turns everything is at rest and can
    be saved.

    Subclasses say what a turn is, and add their own parts to `checkpoint`.

    stack: closes what the loop has opened.
    """

    def __init__(
        self,
        settings: Settings,
        signals: StopSignals,
        stack: contextlib.ExitStack,
        makers: Makers,
    ):
        self.settings = settings
        self.signals = signals
        self.agent = makers.agent()
        replay = makers.replay()
        minimum = self.steps_needed(replay)
        self.store = Store(replay, minimum)
        stack.callback(self.store.close)
        self.logger = makers.logger()
        stack.callback(self.logger.close)
        callback = LogCallback(makers.on_log, signals.request)
        stack.enter_context(callback).join(self.logger)
        show_compiling(self.logger, self.agent)
        self.scores = ScoreFile(settings.logdir, self.logger)
        stack.callback(self.scores.close)
        self.progress = Progress(self.logger.step, settings, minimum)
        planned = timeline.plan(settings.logdir, settings.timeline)
        self.timeline = timeline.Timeline(planned, settings.logdir, 'train')
        self.open_environments(makers, stack)
        self.learner = Trainer(
            self.agent, makers.stream(replay, 'train'), self.store, settings.batch_size
        )
        self.reporter = Reporter(self.agent, makers.stream(replay, 'report'), settings)
        self.update = self.timeline.wrap('update', self.learner.update)
        self.usage = UsageMeter(
            settings.usage, getattr(self.agent, 'device_memory', dict)
        )
        self.train_metrics = Averages()
        self.train_speed = Speed()
        self.should_log = GlobalClock(settings.log_every)
        self.reporting = Allowance(settings.report_every, free=1)
        self.saving = Allowance(settings.save_every)
        self.should_report = GlobalClock(settings.report_every)
        self.should_save = GlobalClock(settings.save_every)
        self.checkpoint = self.make_checkpoint()
        stack.push(self.complete_last_save)

    def open_environments(self, makers: Makers, stack: contextlib.ExitStack) -> None:
        """Makes what plays, before anything is compiled."""
        raise NotImplementedError

    def steps_needed(self, replay: base.Replay) -> int:
        """Steps that the loop has to add to the replay before it trains."""
        raise NotImplementedError

    def take_turn(self) -> None:
        """An update, or whatever else there is to do."""
        raise NotImplementedError

    def finished(self) -> bool:
        """Whether there is no turn to take any more."""
        raise NotImplementedError

    def make_checkpoint(self) -> Checkpoint:
        """Checkpoint with the parts of every loop."""
        settings = self.settings
        checkpoint = Checkpoint(
            settings.checkpoints, settings.keep, note=self.note, trust=settings.trust
        )
        for name in ('progress', 'learner', 'reporter'):
            checkpoint.add(name, getattr(self, name))
        checkpoint.add('replay', self.store)
        checkpoint.add('agent', self.agent, frozen=True)
        return checkpoint

    def run(self) -> Outcome:
        self.restore()
        self.measure_speed()
        while not self.finished():
            self.take_turn()
            self.log_if_due()
            self.report_if_due()
            self.save_if_due()
        return self.finish()

    def restore(self) -> None:
        """Continues this run, or begins it, maybe with the agent of another one."""
        if restore(self.checkpoint, self.agent, self.settings, self.note):
            self.note('restored', updates=self.progress.updates)
        else:
            self.save()

    def learn(self) -> None:
        self.train_metrics.add(self.update())
        self.progress.updates += 1

    def log_if_due(self) -> None:
        if self.should_log():
            self.log()

    def report_if_due(self) -> None:
        if self.should_report(skip=self.reporting.used_up or not self.store.ready):
            with self.reporting:
                self.report()

    def save_if_due(self) -> None:
        # A disk that cannot keep up delays the next save, not the training.
        if self.should_save(skip=self.checkpoint.busy or self.saving.used_up):
            with self.saving:
                self.save()

    def log(self, is_last: bool = False) -> None:
        add, progress = self.logger.add, self.progress
        add({**self.train_metrics.result(), 'updates': progress.updates}, 'train')
        add(self.store.stats(), 'replay')
        add({'reports': self.reporting(), 'saves': self.saving()}, 'loop')
        add({'seconds': progress.seconds}, 'run')
        speeds = self.measure_speed()
        add(moving(speeds) if is_last else speeds, 'fps')
        add(self.usage(), 'usage')
        self.logger.write()

    def measure_speed(self) -> base.Metrics:
        """Updates per second since the last call."""
        return {'train': self.train_speed(self.progress.updates)}

    def report(self) -> None:
        self.logger.add(self.reporter.report(), 'report')
        self.logger.write()

    def save(self) -> None:
        self.checkpoint.save(self.progress.steps)

    def finish(self) -> Outcome:
        """Makes the last report, unless a signal has come, and the last save."""
        # A signal, or a callback, that comes during what follows changes nothing.
        outcome = Outcome.of(self.signals.received or self.progress.limit)
        self.progress.complete = not self.signals.received
        if self.progress.complete and self.settings.report_every and self.store.ready:
            self.report()
        self.log(is_last=True)
        self.save()
        self.checkpoint.wait()
        self.note('ended', **outcome._asdict(), updates=self.progress.updates)
        return outcome

    def note(self, event: str, **details: Any) -> None:
        add_event(self.settings.logdir, event, step=self.progress.steps, **details)

    def complete_last_save(self, kind: Any, error: Any, trace: Any) -> None:
        """After an error, waits until the save before it is on the disk.

        A second interrupt, which is no Exception, does not wait.
        """
        if isinstance(error, Exception):
            try:
                self.checkpoint.wait()
            except CheckpointError as second:
                error.add_note(str(second))


def open_driver(
    make_env: Callable[[int], base.Env],
    envs: int,
    settings: Settings,
    stack: contextlib.ExitStack,
    fits: bool = False,
) -> Driver:
    """fits: as many environments as fit whole vector environments."""
    fns = [functools.partial(make_env, index) for index in range(envs)]
    driver = Driver(fns, parallel=settings.parallel, fits=fits)
    stack.callback(driver.close)
    return driver
