"""Learner: trains the agent on batches from replay, reports and saves."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ....core import base
from ....logging import EventFile
from ....streams import Prefetch
from ...shared.meters import Averages, Share, Speed, usage
from ...shared.progress import is_finished
from ...shared.reporter import Reporter
from ...shared.restore import note_rewind, restore
from ..address_book import address_book
from ..run_state import DURATION, FAILURE, STEPS, RunState
from ..saves.coordinator import Saves, open_checkpoint
from ..settings import ParallelSettings
from ..supervision.health import COMPILING, SAVING, health
from .connections import Peers
from .fetcher import Fetcher
from .replicas import Replicas

__all__ = ['Learner', 'parallel_learner']

ACTOR_FAREWELL = 12.0  # seconds for the actor to tell the logger of the last episodes


def parallel_learner(
    agent: base.Agent, barrier: threading.Barrier, args: Mapping[str, Any]
) -> None:
    """Restores the agent, lets acting begin, and trains until the run ends."""
    settings = ParallelSettings.read(args)
    session = RunState.of(barrier)
    try:
        with contextlib.closing(Peers(settings)) as peers:
            Learner(agent, peers, session, settings).run(barrier.wait)
    except BaseException:
        barrier.abort()  # The actor shall not wait there for ever.
        raise


class Learner:
    """Trains as fast as replay serves batches, which knows the train ratio.

    `session` says whether and why the run ends: at run.steps replay ends the stream of
    batches when no update is owed any more; at run.duration and when somebody
    interrupts, the running update is the last.
    """

    def __init__(
        self,
        agent: base.Agent,
        peers: Peers,
        session: RunState,
        settings: ParallelSettings,
    ):
        self.agent = agent
        self.peers = peers
        self.session = session
        self.settings = settings
        self.replicas = Replicas(agent, session, settings)
        self.carry = agent.init_train(settings.batch_size)
        self.reporter = Reporter(agent, peers.report, settings)
        self.eval_reporter = Reporter(agent, peers.evaluation, settings)
        self.train_metrics = Averages()
        self.env_speed, self.train_speed = Speed(), Speed()
        self.waiting = Share()
        self.should_log = self.replicas.clock(settings.log_every)
        self.should_report = self.replicas.clock(settings.report_every)
        self.should_report_eval = self.replicas.clock(settings.report_every)
        self.should_save = self.replicas.clock(settings.save_every)
        self.updates = 0
        self.trained = 0  # sequences
        self._earlier = 0.0  # seconds of sessions before this one
        self._begin = time.monotonic()
        self.finished = False  # in a session before this one
        self._compiled: set[str] = set()  # programs that were called
        self._noted = 0  # programs whose compile time was written down
        self._dropping = False  # replay does not take latents
        self.checkpoint = open_checkpoint(settings, 'agent')
        self.checkpoint.add('learner', self)
        if self.replicas.leads:
            self.checkpoint.add('agent', agent, frozen=True)
        self.saves = Saves(
            self.checkpoint,
            settings.checkpoints,
            peers.ask_to_save,
            lambda: {'updates': self.updates, 'trained': self.trained},
            address_book().has_lost,
            self.note,
        )

    def run(self, let_act: Callable[[], Any]) -> None:
        """Trains until the run ends. Acting waits until `let_act` is called."""
        self.restore()
        let_act()
        if self.finished:
            # We died after the last save, before all others knew.
            reached = self.session.steps >= self.settings.steps
            self.dismiss(STEPS if reached else DURATION)
            return
        self.begin()
        for batch in self.replicas.in_step(self.batches()):
            self.train_on(batch)
            self.log_if_due()
            self.report_if_due()
            self.save_if_due()
        self.finish()

    def prepare(self) -> None:
        """Lets an agent that can compile its programs while replay fills."""
        prepare = getattr(self.agent, 'prepare', None)
        if prepare is not None:
            x = self.settings
            reports = x.report_length if x.report_every else 0
            prepare(x.batch_size, x.batch_length, reports)

    def restore(self) -> None:
        """Continues this run, or begins it, maybe with the agent of another one."""
        restored = restore(self.checkpoint, self.agent, self.settings, self.note)
        self.follow()
        if restored:
            self.note('restored', updates=self.updates, trained=self.trained)
            note_rewind(self.settings.logdir, 'train/updates', self.updates)
        else:
            self.saves.save_agent(self.session.steps)

    def follow(self) -> None:
        """Goes on where replica 0 does, which may have saved less."""
        updates, finished = self.replicas.follow([self.updates, self.finished])
        self.trained -= max(0, self.updates - updates) * self.settings.batch_size
        self.updates, self.finished = updates, bool(finished)

    def begin(self) -> None:
        self.prepare()
        threading.Thread(target=self._watch, name='limits', daemon=True).start()
        self.peers.start(self.trained)
        self.measure_speed()

    def batches(self) -> Iterator[Any]:
        """Batches on the device, until the session ends."""
        stream = iter(self.agent.stream(self.peers.train))
        if self.settings.moves_ahead:
            # Moving a batch takes the host about as long as half an update.
            stream = Prefetch(stream)
        while not self.interrupted:
            with self.waiting:
                batch = self._next(stream)
            if batch is None:
                return
            yield batch

    @property
    def interrupted(self) -> bool:
        """Whether to stop at once, with updates owed or not."""
        return self.session.stopped and self.session.reason != STEPS

    @property
    def seconds(self) -> float:
        """Running time; pauses between two sessions do not count."""
        return self._earlier + time.monotonic() - self._begin

    def train_on(self, batch: Any) -> None:
        with self._working('train'):
            self.carry, outs, metrics = self.agent.train(self.carry, batch)
        # When all stop, neither this update nor the one before it counts.
        counted = -1 if self.replicas.over else 1
        self.updates += counted
        health().advance()
        health().has_saved(everything=False)
        self.trained += counted * self.settings.batch_size
        self.train_metrics.add(metrics)
        if outs.get('replay'):
            self.send_latents(outs['replay'])

    def send_latents(self, latents: base.Batch) -> None:
        """Waits for a replay that is slow, but not for one that does not answer."""
        dropping = not self.peers.updates.put(latents)
        if dropping and not self._dropping:
            dropped = self.peers.updates.dropped
            self.note('latents_dropped', updates=self.updates, dropped=dropped)
        self._dropping = dropping

    def log_if_due(self) -> None:
        if self.should_log():
            self.log()

    def report_if_due(self) -> None:
        if self.should_report(skip=not self.peers.report.ready):
            self.report()
        if self.should_report_eval(skip=not self.peers.evaluation.ready):
            self.report_eval()

    def save_if_due(self) -> None:
        # A disk that cannot keep up delays the next save, not the training.
        if self.should_save(skip=self.saves.busy):
            self.saves.begin()
        self.saves.advance(self.session.steps)

    def log(self) -> None:
        self.note_compiled()
        self.send({**self.train_metrics.result(), 'updates': self.updates}, 'train')
        self.send(self.measure_speed(), 'fps')
        self.send(self.measure_loop(), 'learner')
        self.send({'seconds': self.seconds}, 'run')
        if self.settings.usage:
            self.send(usage(), 'usage/agent')

    def measure_speed(self) -> base.Metrics:
        """Environment steps and updates per second since the last call."""
        return {
            'env': self.env_speed(self.session.played),
            'train': self.train_speed(self.updates),
        }

    def measure_loop(self) -> base.Metrics:
        return {
            'wait': self.waiting(),
            'dropped_updates': self.peers.updates.dropped,
            'dropped_metrics': self.peers.log.dropped,
        }

    def report(self) -> None:
        self._report(self.reporter, self.peers.report, 'report')

    def report_eval(self) -> None:
        self._report(self.eval_reporter, self.peers.evaluation, 'eval')

    def send(self, metrics: base.Metrics, prefix: str) -> None:
        self.peers.log.put(metrics, prefix, self.session.steps)

    def finish(self) -> None:
        """The last report, unless somebody is waiting, and the last save; replay and
        logger end as well."""
        self.session.stop(STEPS)  # unless it was stopped for another reason
        if self.session.reason == FAILURE:
            self.checkpoint.wait()
            return
        if self.session.complete and self.settings.report_every and self.replicas.alone:
            if self.peers.report.ready:
                self.report()
            if self.peers.evaluation.ready:
                self.report_eval()
        with health().busy(SAVING):
            # The last steps may have reached replay after the actor heard from it.
            self.session.steps = max(self.session.steps, self.saves.await_peers())
            self.log()
            self.saves.save_agent(self.session.steps, self.session.reason)
            self.checkpoint.wait()
        self.replicas.part()
        self.note('ended', **self.session.outcome._asdict(), updates=self.updates)
        self.dismiss(self.session.reason)

    def dismiss(self, reason: str) -> None:
        """Tells the others, after the last save: until then they are needed."""
        self.session.stop(reason)
        self.session.await_actor(ACTOR_FAREWELL)
        self.peers.finish(self.session.steps)

    def save(self) -> dict[str, Any]:
        return {
            'updates': self.updates,
            'trained': self.trained,
            'seconds': self.seconds,
            'steps': self.session.steps,
            'complete': self.session.complete,
        }

    def load(self, data: dict[str, Any]) -> None:
        self.updates, self.trained = data['updates'], data['trained']
        self._earlier, self._begin = data['seconds'], time.monotonic()
        self.session.steps = max(self.session.steps, data['steps'])
        self.finished = is_finished(data, self.settings)

    def note(self, event: str, **details: Any) -> None:
        with contextlib.closing(EventFile(self.settings.logdir)) as events:
            events.add(event, step=self.session.steps, **details)

    def note_compiled(self) -> None:
        """Writes down what the agent has compiled since the last time, if it tells."""
        new = list(getattr(self.agent, 'compiled', ()))[self._noted :]
        self._noted += len(new)
        for program, seconds, cached in new:
            details = {'seconds': round(seconds, 1), 'cached': cached}
            self.note('compiled', program=program, **details)

    def _working(self, program: str) -> contextlib.AbstractContextManager[None]:
        """What the supervisor is told: the first call of a program compiles it, and
        one with other replicas may wait for them."""
        first = program not in self._compiled
        self._compiled.add(program)
        if not (first or self.replicas.alone):
            return contextlib.nullcontext()
        return health().busy(COMPILING if first else '')

    def _report(self, reporter: Reporter, stream: Fetcher, prefix: str) -> None:
        """Sends a report, unless the session ends while it waits for batches."""
        try:
            metrics = reporter.report(lambda: self._working('report'))
        except RuntimeError:  # as in `_next`
            if not stream.ended:
                raise
        else:
            if not stream.ended:
                self.send(metrics, prefix)

    def _next(self, stream: Iterator[Any]) -> Any:
        try:
            return next(stream)
        except (StopIteration, RuntimeError):
            # An agent's generator that calls next() itself turns the end of its
            # source into a RuntimeError.
            if not self.peers.train.ended:
                raise
            return None

    def _watch(self) -> None:
        """Ends the session at run.duration, also while we wait for a batch."""
        duration = self.settings.duration
        left = max(0.0, duration - self.seconds) if duration else None
        if not self.session.wait(left):
            self.session.stop(DURATION)
        if self.interrupted:
            # At run.duration there is a last report, and replicas end theirs together.
            reports = self.replicas.alone and not self.session.complete
            self.peers.interrupt(reports)
