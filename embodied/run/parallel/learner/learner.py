"""Learner: trains the agent on batches from replay, reports and saves."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ....core import base
from ....processes.timeline import DeviceTrack, Timeline
from ....processes.usage import UsageMeter
from ....streams import Prefetch
from ...shared.meters import Allowance, Averages, Share, Speed, moving
from ...shared.restore import note_rewind, restore
from ..context import RoleContext
from ..run_state import DURATION, STEPS, RunState
from ..saves.coordinator import Saves, open_checkpoint
from ..supervision.health import SAVING
from ..timeouts import ACTOR_ENDS
from .agent_calls import AgentCalls
from .connections import Connections
from .replicas import Replicas
from .reports import Reports
from .training_progress import TrainingProgress

__all__ = ['Learner', 'parallel_learner']

NEEDED = ('batch_size', 'batch_length')  # args without which a learner cannot work


def parallel_learner(
    agent: base.Agent, barrier: threading.Barrier, args: Mapping[str, Any]
) -> None:
    """Restores the agent, lets acting begin, and trains until the run ends."""
    run_state = RunState.of(barrier)
    context = RoleContext.of(args, run_state.health, NEEDED, 'agent')
    if 'logdir' not in args:
        folder = context.settings.logdir.absolute()
        print(f'The args of the learner have no logdir: it saves in {folder}.')
    try:
        with contextlib.closing(Connections(context)) as connections:
            Learner(agent, connections, run_state, context).run(barrier.wait)
    except BaseException:
        barrier.abort()  # The actor waits there for the restored agent.
        raise


class Learner:
    """Trains as fast as replay serves batches; replay enforces the train ratio.

    `run_state` says whether and why the run ends. At run.steps replay ends the stream
    of batches as soon as no update is owed. At run.duration, or at a signal, the
    current update is the last one.
    """

    def __init__(
        self,
        agent: base.Agent,
        connections: Connections,
        run_state: RunState,
        context: RoleContext,
    ):
        self.agent = agent
        self.connections = connections
        self.run_state = run_state
        self.context = context
        self.settings = settings = context.settings
        self.replicas = Replicas(agent, run_state, settings)
        self.carry = agent.init_train(settings.batch_size)
        self.calls = AgentCalls(agent, context.health, self.replicas.alone)
        self.train, self.fetch = self._record(context.timeline)
        self.should_log = self.replicas.clock(settings.log_every)
        busy = lambda: self.calls.busy('report')
        self.reports = Reports(
            agent, connections, self.replicas, settings, busy, self.send
        )
        self.should_save = self.replicas.clock(settings.save_every)
        self.train_metrics = Averages()
        self.env_speed, self.train_speed = Speed(), Speed()
        self.usage = UsageMeter(settings.usage, getattr(agent, 'device_memory', dict))
        self.waiting = Share()
        self._waited = self._idle = 0.0  # seconds: the last time, and so far
        self.idle_share = Speed()  # of these seconds
        self.saving = Allowance(settings.save_every)
        self._dropping = False  # replay does not take latents
        self.progress = TrainingProgress(run_state, settings)
        self.checkpoint = open_checkpoint(context, 'agent')
        self.checkpoint.add('learner', self.progress)
        if self.replicas.leads:
            self.checkpoint.add('agent', agent, frozen=True)
        counters = lambda: self.progress.counters
        ask = connections.ask_to_save
        self.saves = Saves(self.checkpoint, ask, counters, self.note, context)

    def run(self, let_act: Callable[[], Any]) -> None:
        """Trains until the run ends. Acting waits until `let_act` is called."""
        self.restore()
        let_act()
        if self.progress.finished:
            # The process died after the last save, before all roles were dismissed.
            self.dismiss(STEPS if self.progress.steps_reached else DURATION)
            return
        self.begin()
        for batch in self.replicas.in_step(self.batches()):
            self.train_on(batch)
            self.log_if_due()
            self.reports.make_due()
            self.save_if_due()
        self.finish()

    # Beginning

    def restore(self) -> None:
        """Continues the run from its last save, or begins it, maybe with the agent of
        another run."""
        restored = restore(self.checkpoint, self.agent, self.settings, self.note)
        self.progress.follow(self.replicas)
        if restored:
            self.note('restored', **self.progress.counters)
            updates = self.progress.updates
            note_rewind(self.settings.logdir, 'train/updates', updates)
        else:
            self.saves.save_agent(self.run_state.steps)

    def begin(self) -> None:
        """Compiles while replay fills, and asks for the first batches."""
        self.prepare()
        threading.Thread(target=self._watch_end, name='limits', daemon=True).start()
        self.connections.start(self.progress.trained)
        self.measure()  # Speeds count from here on.

    def prepare(self) -> None:
        """Lets an agent that has a method for it compile its programs in advance."""
        prepare = getattr(self.agent, 'prepare', None)
        if prepare is not None:
            x = self.settings
            reports = x.report_length if x.report_every else 0
            prepare(x.batch_size, x.batch_length, reports)

    # Training

    def batches(self) -> Iterator[Any]:
        """Batches on the device, until the run ends."""
        fetcher = self.connections.train
        stream = iter(self.agent.stream(fetcher))
        if self.settings.moves_ahead:
            # Moving a batch takes the host about as long as half an update.
            stream = Prefetch(stream)
        while not self.interrupted:
            batch, begin = None, time.perf_counter()
            with self.waiting, fetcher.until_end():
                batch = self.fetch(stream)
            if batch is None:
                return
            self._waited = time.perf_counter() - begin
            yield batch

    def _record(self, timeline: Timeline) -> tuple[Callable, Callable]:
        """`agent.train` and `next`, in the timeline, with what the device does."""
        if timeline.on and hasattr(self.agent, 'on_update'):
            self.agent.on_update = DeviceTrack(timeline, 'update')
        return timeline.wrap('train', self.agent.train), timeline.wrap('fetch', next)

    @property
    def interrupted(self) -> bool:
        """Whether training ends at once, with updates owed or not."""
        return self.run_state.stopped and self.run_state.reason != STEPS

    def train_on(self, batch: Any) -> None:
        with self.calls.busy('train'):
            self.carry, outs, metrics = self.train(self.carry, batch)
        # The device may have been at work on the update before for all the wait.
        if getattr(self.agent, 'idle', True):
            self._idle += self._waited
        # When all replicas stop, neither this update nor the one before it counts.
        self.progress.add(-1 if self.replicas.over else 1)
        self.context.health.advance()
        self.context.health.has_saved(everything=False)
        self.train_metrics.add(metrics)
        if outs.get('replay'):
            self.send_latents(outs['replay'])

    def send_latents(self, latents: base.Batch) -> None:
        """Waits for a slow replay, but not for one that does not answer."""
        updates = self.connections.updates
        dropping = not updates.put(latents)
        if dropping and not self._dropping:
            details = {'updates': self.progress.updates, 'dropped': updates.dropped}
            self.note('latents_dropped', **details)
        self._dropping = dropping

    # Logging and saving

    def log_if_due(self) -> None:
        if self.should_log():
            self.log()

    def log(self, is_last: bool = False) -> None:
        for details in self.calls.newly_compiled():
            self.note('compiled', **details)
        metrics = self.measure()
        if is_last:
            metrics['fps'] = moving(metrics['fps'])
        for prefix, values in metrics.items():
            self.send(values, prefix)

    def measure(self) -> dict[str, base.Metrics]:
        """Metrics since the last call, by prefix."""
        updates, connections = self.progress.updates, self.connections
        speeds = {
            'env': self.env_speed(self.run_state.played),
            'train': self.train_speed(updates),
        }
        loop = {
            'wait': self.waiting(),
            'idle': self.idle_share(self._idle),
            'reports': self.reports.spent(),
            'saves': self.saving(),
            'dropped_updates': connections.updates.dropped,
            'dropped_metrics': connections.log.dropped,
        }
        metrics = {
            'train': {**self.train_metrics.result(), 'updates': updates},
            'fps': speeds,
            'learner': loop,
            'run': {'seconds': self.progress.seconds},
        }
        if used := self.usage():
            metrics['usage/agent'] = used
        return metrics

    def save_if_due(self) -> None:
        # A disk that cannot keep up delays the next save, not the training.
        due = self.should_save(skip=self.saves.busy or self.saving.used_up)
        with self.saving:
            if due:
                self.saves.begin()
            self.saves.advance(self.run_state.steps)

    def send(self, metrics: base.Metrics, prefix: str) -> None:
        """Sends metrics to the logger."""
        self.connections.log.put(metrics, prefix, self.run_state.steps)

    def note(self, event: str, **details: Any) -> None:
        """Adds an event of this step to the run's events."""
        self.context.note(event, step=self.run_state.steps, **details)

    # End

    def finish(self) -> None:
        """Makes the last reports and the last save, then ends replay and logger."""
        run_state = self.run_state
        run_state.stop(STEPS)  # unless it was stopped for another reason
        if run_state.failed:
            self.checkpoint.wait()
            return
        # After a signal, reports would delay the end.
        if run_state.complete and self.settings.report_every and self.replicas.alone:
            self.reports.make_last()
        with self.context.health.busy(SAVING):
            # The last steps may have reached replay after its last answer to the actor.
            run_state.steps = max(run_state.steps, self.saves.await_writers())
            self.log(is_last=True)
            self.saves.save_agent(run_state.steps, run_state.reason)
            self.checkpoint.wait()
        self.replicas.part()
        outcome = run_state.outcome._asdict()
        self.note('ended', **outcome, updates=self.progress.updates)
        self.dismiss(run_state.reason)

    def dismiss(self, reason: str) -> None:
        """Ends replay and logger, after the last save and the actor's last messages."""
        self.run_state.stop(reason)
        self.run_state.await_actor(ACTOR_ENDS)
        self.connections.finish(self.run_state.steps)

    def _watch_end(self) -> None:
        """Stops the run at run.duration, also while training waits for a batch."""
        duration = self.settings.duration
        left = max(0.0, duration - self.progress.seconds) if duration else None
        if not self.run_state.wait(left):
            self.run_state.stop(DURATION)
        if self.interrupted:
            # At run.duration there is a last report, and replicas end theirs together.
            reports = self.replicas.alone and not self.run_state.complete
            self.connections.interrupt(reports)
