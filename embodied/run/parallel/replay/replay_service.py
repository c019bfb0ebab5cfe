"""Replay service: buffers and rate limiter; it decides when run.steps is reached."""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

from ....core import base
from ....core.limiters import MinSize, RateLimiter
from ....processes.usage import UsageMeter
from ...shared.meters import Share, moving
from ...shared.ratio import RatioHistory, RatioPeriod, measured_ratio
from ..context import RoleContext
from .buffer import Buffer

__all__ = ['ReplayService']

# Metrics since the last line, of a replay and of those who wait for it.
TRAFFIC = ('inserts', 'samples', 'updates', 'replay_ratio')
WAITS = ('insert_wait', 'sample_wait')


class ReplayService:
    """Serves the methods of the protocol.

    Each method may have a thread of its own, but only one: rows are counted and streams
    are read in order. Inserts are the rows that were ever added. The learner numbers
    the samples. A ratio that has changed holds for the rows to come.

    on_finish: called when the learner says that the run has ended.
    """

    def __init__(
        self,
        train: Buffer,
        evaluation: Buffer,
        context: RoleContext,
        on_finish: Callable[[], Any] = lambda: None,
    ):
        self._train = train
        self._evaluation = evaluation
        self.settings = settings = context.settings
        self._on_finish = on_finish
        self.limiter = RateLimiter.for_training(
            settings.train_ratio,
            settings.batch_size,
            settings.batch_length,
            settings.sequence_length(train),
            streams=settings.envs,
            # Requested but not trained: those on their way and the one in training.
            ahead=(settings.prefetch + 1) * settings.batch_size,
        )
        wrap = context.timeline.wrap
        self._await_insert = wrap('wait', self.limiter.await_insert)
        self._await_sample = wrap('wait', self.limiter.sample)
        self._filled = MinSize(self.limiter.minimum)
        self._eval_filled = MinSize(settings.eval_minimum(evaluation))
        self._insert_wait, self._sample_wait = Share(), Share()
        self._usage = UsageMeter(settings.usage)
        self._stopped = False
        self._forgotten = 0  # steps that a replay without memory had before a restart
        self._origin: int | None = 0  # number of the first sequence since then
        self._chunks: dict[base.Mode, int | None] = {'report': None, 'eval': None}
        self._count_inserts()
        self.resume_ratio(RatioHistory())

    @property
    def steps(self) -> int:
        """Committed environment steps of the run."""
        return self._forgotten + self._train.inserts

    @property
    def counters(self) -> dict[str, int]:
        """Counters of a save, for the manifest."""
        return {'steps': self.steps}

    @property
    def next_number(self) -> int:
        """The number of the training batch that follows those that were sampled."""
        return (self._origin or 0) + self.limiter.samples

    @property
    def over(self) -> bool:
        """Whether no more rows are added."""
        return self._stopped or self.steps >= self.settings.steps

    def add_batch(
        self, steps: base.Batch, streams: base.Array, serials: base.Array
    ) -> dict[str, Any]:
        """Adds rows for training, [n, ...] per key; waits for the limiter."""
        with self._insert_wait:
            admitted = self.over or self._await_insert(len(streams))
        if admitted and not self.over:
            self._train.add(steps, streams, serials)
            self._count_inserts()
        return {'steps': self.steps, 'stop': self.over}

    def add_batch_eval(
        self, steps: base.Batch, streams: base.Array, serials: base.Array
    ) -> dict[str, Any]:
        """Adds rows for evaluation, without waiting."""
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
                self._train.restart_stream('train')
        with self._sample_wait:
            admitted = self._await_sample(self.settings.batch_size)
        return self._train.take('train') if admitted else {}

    def sample_batch_report(self, number: int) -> base.Batch:
        """A batch for a report; `number` counts sequences since the learner started."""
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
        """Takes note that the run has ended; all waiting ends."""
        self._stopped = True
        for limiter in (self.limiter, self._filled, self._eval_filled):
            limiter.stop()
        self._on_finish()

    def metrics(self) -> dict[str, base.Metrics]:
        """Metrics since the last call, by prefix."""
        limiter, minimum = self.limiter, self.limiter.minimum
        ratio = self.ratios.last
        trained = (limiter.samples - ratio.earned) * self.settings.batch_length
        steps = limiter.inserts - ratio.start
        replay = {
            **self._train.stats(),
            'fill': min(1.0, limiter.inserts / minimum),
            'train_ratio': measured_ratio(float(trained), steps),
            'balance': limiter.balance(),
            'insert_wait': self._insert_wait(),
            'sample_wait': self._sample_wait(),
        }
        metrics = {'replay': self._unless_ended(replay)}
        if self._evaluation.inserts:
            metrics['eval_replay'] = self._unless_ended(self._evaluation.stats())
        if used := self._usage():
            metrics['usage/replay'] = used
        return metrics

    def _unless_ended(self, metrics: base.Metrics) -> base.Metrics:
        """The metrics; of a run that is over without what does not happen any more."""
        if not self.over:
            return metrics
        passing = {k: v for k, v in metrics.items() if k in (*TRAFFIC, *WAITS)}
        return {k: v for k, v in metrics.items() if k not in passing} | moving(passing)

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
            # Filled again, and trained from then on as the ratio says: what was
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
        """History for a save of version 0.1.0, which does not contain the ratio.

        If its counters lie within the limiter's band, the ratio was the present one.
        Otherwise it was another one, which had earned what was trained by then.
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
            buffer.restart_stream(mode)
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
