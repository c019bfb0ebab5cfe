"""Replay role: owns the buffers and the rate limiter, and knows when a run is over."""

import contextlib
import functools
import queue
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from ....core import base
from ....core.files import storage_errors
from ....core.limiters import MinSize, RateLimiter
from ....logging import add_event
from ....processes.signals import StopSignals
from ....replay import Replay
from ...shared.meters import Share, usage
from ...shared.ratio import RatioHistory, RatioPeriod
from .. import protocol
from ..context import make_client, make_server
from ..outbox import LOG_QUEUE, Outbox
from ..pickling import unpack
from ..saves.coordinator import RoleSaves
from ..serving import Chore, serve
from ..settings import ParallelSettings
from ..supervision.health import counted
from .buffer import Buffer
from .ratio_record import RatioRecord

__all__ = ['ReplayService', 'parallel_replay']

FINISHED = 'finished'


def parallel_replay(
    make_replay_train: Callable[[], Any] | bytes,
    make_replay_eval: Callable[[], Any] | bytes,
    make_stream: Callable[[Any, base.Mode], Any] | bytes,
    args: Mapping[str, Any],
) -> str:
    """Serves replay until the run ends, and saves; a signal that came before that."""
    settings = ParallelSettings.read(args)
    server = make_server(settings.replay_addr, 'replay', settings)
    make_stream = unpack(make_stream)
    mail: queue.SimpleQueue = queue.SimpleQueue()
    with contextlib.ExitStack() as stack:
        stack.enter_context(storage_errors(settings.logdir))
        # To the very end: a signal must not cut off the last save.
        signals = stack.enter_context(StopSignals(mail.put))
        replay = unpack(make_replay_train)()
        _report_loss(replay, settings)
        replays = [replay]
        report_damages = functools.partial(_report_damages, replays, settings)
        stack.callback(report_damages)
        train = Buffer(replay, make_stream, ('train', 'report'), server.empty)
        stack.callback(train.close)
        replay = unpack(make_replay_eval)()
        replays.append(replay)
        report_damages()
        evaluation = Buffer(replay, make_stream, ('eval',), server.empty)
        stack.callback(evaluation.close)
        service = ReplayService(train, evaluation, settings, lambda: mail.put(FINISHED))
        saves = RoleSaves('replay', service, settings)
        _follow_ratio(service, settings)
        client = make_client(settings.logger_addr, 'replay', settings)
        logger = Outbox(client, 'add', LOG_QUEUE)
        stack.callback(logger.close)

        def log() -> None:
            report_damages()
            for prefix, metrics in service.metrics().items():
                logger.put(metrics, prefix, service.steps)

        for name in protocol.REPLAY:
            server.bind(name, counted(getattr(service, name)), once=True)
        server.bind(protocol.SAVE, saves.save)
        stack.callback(server.close)
        reason = serve(server, [Chore(settings.log_every, log)], mail)
        saves.save()
    return '' if reason == FINISHED else signals.received or ''


def _report_loss(replay: Any, settings: ParallelSettings) -> None:
    """Steps count as soon as they are stored, so everybody may know of those that a
    machine has taken with it."""
    if getattr(replay, 'lost', 0):
        details = {'steps': replay.lost, 'reason': 'not synced (replay.sync)'}
        add_event(settings.logdir, 'lost', **details)


def _follow_ratio(service: 'ReplayService', settings: ParallelSettings) -> None:
    """Goes on with the ratios that the run had, and keeps them before a step comes."""
    note = functools.partial(add_event, settings.logdir)
    record = RatioRecord(settings.checkpoints / 'replay', note)
    known = record.read()
    if known is not None:
        service.resume_ratio(known)
    if service.ratios == known:
        return
    record.write(service.ratios)
    if len(service.ratios.periods) > 1:
        details = {'step': service.steps, 'ratio': settings.train_ratio}
        add_event(settings.logdir, 'train_ratio', **details)


def _report_damages(replays: list[Any], settings: ParallelSettings) -> None:
    """Damaged files may be found at the start, or later in the background."""
    ours = [replay for replay in replays if isinstance(replay, Replay)]
    for damage in [x for replay in ours for x in replay.take_damages()]:
        add_event(settings.logdir, 'damaged', **damage.details())


class ReplayService:
    """Answers the calls of the protocol. Each may be served by a thread of its own,
    but none by two: rows are counted and streams read in order.

    Inserts are the rows that the replay holds or held. Samples are numbered by the
    learner. Another ratio than before holds for the rows to come. `on_finish` is called
    when the agent says that the run has ended.
    """

    def __init__(
        self,
        train: Buffer,
        evaluation: Buffer,
        settings: ParallelSettings,
        on_finish: Callable[[], Any] = lambda: None,
    ):
        self._train = train
        self._evaluation = evaluation
        self.settings = settings
        self._on_finish = on_finish
        length = settings.consec_train * settings.batch_length + settings.replay_context
        self.limiter = RateLimiter.for_training(
            settings.train_ratio,
            settings.batch_size,
            settings.batch_length,
            length,
            streams=settings.envs,
            # Requested but not trained: those on their way and the one in training.
            ahead=(settings.prefetch + 1) * settings.batch_size,
        )
        self._filled = MinSize(self.limiter.minimum)
        self._eval_filled = MinSize(max(1, settings.eval_minimum))
        self._insert_wait, self._sample_wait = Share(), Share()
        self._stopped = False
        self._forgotten = 0  # steps that a replay without memory had before a restart
        self._origin: int | None = 0  # number of the first sequence since then
        self._chunks: dict[base.Mode, int | None] = {'report': None, 'eval': None}
        self._count_inserts()
        self.resume_ratio(RatioHistory())

    @property
    def steps(self) -> int:
        """Environment steps of the run that are committed."""
        return self._forgotten + self._train.inserts

    @property
    def counters(self) -> dict[str, int]:
        """What the manifest says about a save."""
        return {'steps': self.steps}

    @property
    def over(self) -> bool:
        """Whether no more rows are taken."""
        return self._stopped or self.steps >= self.settings.steps

    def add_batch(
        self, steps: base.Batch, streams: base.Array, serials: base.Array
    ) -> dict[str, Any]:
        """Rows of training environments, [n, ...] per key; waits for the limiter."""
        with self._insert_wait:
            admitted = self.over or self.limiter.await_insert(len(streams))
        if admitted and not self.over:
            self._train.add(steps, streams, serials)
            self._count_inserts()
        return {'steps': self.steps, 'stop': self.over}

    def add_batch_eval(
        self, steps: base.Batch, streams: base.Array, serials: base.Array
    ) -> dict[str, Any]:
        """Rows of evaluation environments, which wait for nobody."""
        self._evaluation.add(steps, streams, serials)
        self._count_eval_inserts()
        return {'steps': self.steps, 'stop': self.over}

    def sample_batch_train(self, number: int) -> base.Batch:
        """The batch whose first sequence is trained on as number `number` of the run.

        {} when the run is over and no update is owed any more.
        """
        if self._origin is None:
            self._origin = number
        samples = number - self._origin
        if samples != self.limiter.samples:
            # The learner or replay itself was restored from a save.
            self.limiter.correct(samples=samples)
            if self.settings.consec_train > 1:
                # The next batch would not follow the one that the carry is of.
                self._train.begin_anew('train')
        with self._sample_wait:
            admitted = self.limiter.sample(self.settings.batch_size)
        return self._train.take('train') if admitted else {}

    def sample_batch_report(self, number: int) -> base.Batch:
        """Numbered from 0 in each session of the learner, by sequences."""
        if not self._filled.sample():
            return {}
        return self._take_report(self._train, 'report', number)

    def sample_batch_eval(self, number: int) -> base.Batch:
        if not self._eval_filled.sample():
            return {}
        return self._take_report(self._evaluation, 'eval', number)

    def update(self, data: base.Batch) -> None:
        """Latents and priorities by data['stepid'], as the learner computed them."""
        self._train.update(data)

    def finish(self) -> None:
        """The run has ended: nobody waits any more."""
        self._stopped = True
        for limiter in (self.limiter, self._filled, self._eval_filled):
            limiter.stop()
        self._on_finish()

    def metrics(self) -> dict[str, base.Metrics]:
        """What happened since the last call, by prefix."""
        limiter, minimum = self.limiter, self.limiter.minimum
        beyond = max(0, limiter.inserts - minimum)
        trained = limiter.samples * self.settings.batch_length
        replay = {
            **self._train.stats(),
            'fill': min(1.0, limiter.inserts / minimum),
            'train_ratio': trained / beyond if beyond else 0.0,
            'balance': limiter.balance(),
            'insert_wait': self._insert_wait(),
            'sample_wait': self._sample_wait(),
        }
        metrics = {'replay': replay}
        if self._evaluation.inserts:
            metrics['eval_replay'] = self._evaluation.stats()
        if self.settings.usage:
            metrics['usage/replay'] = usage()
        return metrics

    def save(self) -> dict[str, Any]:
        return {
            'train': self._train.save(),
            'evaluation': self._evaluation.save(),
            'samples': self.limiter.samples,
            'ratios': self.ratios.save(),
            'steps': self.steps,
            'forgotten': self._forgotten,
            'origin': self._origin,
        }

    def load(self, data: dict[str, Any]) -> None:
        self._train.load(data['train'])
        self._evaluation.load(data['evaluation'])
        if self._train.inserts:
            self._forgotten, self._origin = data['forgotten'], data['origin']
            self.limiter.correct(samples=data['samples'])
        else:
            # Filled anew, and trained from then on as the ratio says: what was
            # trained before was earned by steps that are gone.
            self._forgotten, self._origin = data['steps'], None
        self._count_inserts()
        self._count_eval_inserts()
        if 'ratios' in data:
            self.resume_ratio(RatioHistory.load(data['ratios']))
        else:
            self.resume_ratio(self._ratio_of(data))

    def resume_ratio(self, history: RatioHistory) -> None:
        """Continues the balance of a run with these ratios at the rows of now."""
        limiter = self.limiter
        self.ratios = history.resume(
            limiter.ratio, limiter.minimum, self._train.inserts, limiter.samples
        )
        limiter.count_from(self.ratios.last.start, self.ratios.last.earned)
        end = self.settings.steps - self._forgotten
        limiter.end_at(end, self.settings.batch_size)

    def _ratio_of(self, data: dict[str, Any]) -> RatioHistory:
        """History for a save of version 0.1.0, which does not tell the ratio.

        If its counters lie within the band, the ratio was that of now. Otherwise it
        was another one, and what was trained by then is what it had earned.
        """
        limiter, ratio = self.limiter, self.limiter.ratio
        inserts, samples = data['train']['inserts'], data['samples']
        beyond = inserts - limiter.minimum
        if beyond <= 0:
            return RatioHistory()
        request = max(self.settings.batch_size, self.settings.envs * (ratio or 0))
        slack = limiter.tolerance + request
        if ratio is not None and abs(beyond * ratio - samples) <= slack:
            return RatioHistory((RatioPeriod(limiter.minimum, Fraction(0), ratio),))
        return RatioHistory((RatioPeriod(inserts - 1, Fraction(samples), None),))

    def _take_report(self, buffer: Buffer, mode: base.Mode, number: int) -> base.Batch:
        """Every `consec_report` batches from number 0 on are one sequence, also when
        the learner or replay itself was restored within one."""
        consec = self.settings.consec_report
        first = number // self.settings.batch_size % consec == 0
        chunk = self._chunks[mode]
        if consec > 1 and (chunk is None or (first and chunk)):
            buffer.begin_anew(mode)
            chunk = 0
        self._chunks[mode] = ((chunk or 0) + 1) % consec
        return buffer.take(mode)

    def _count_inserts(self) -> None:
        inserts = _usable(self._train, self.limiter.minimum)
        self.limiter.correct(inserts=inserts)
        self._filled.correct(inserts=inserts)
        if self.over:
            self.limiter.end_inserts()

    def _count_eval_inserts(self) -> None:
        inserts = _usable(self._evaluation, self._eval_filled.minimum)
        self._eval_filled.correct(inserts=inserts)


def _usable(buffer: Buffer, minimum: int) -> int:
    """Rows of a buffer; fewer than the minimum as long as no stream is long enough.

    Environments that start again and again leave many short streams.
    """
    return buffer.inserts if buffer.serves else min(buffer.inserts, minimum - 1)
