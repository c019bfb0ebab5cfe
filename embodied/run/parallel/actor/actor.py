"""Actor: chooses actions for all environments, and passes on their transitions."""

import logging
import threading
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ....core import base
from ....core.errors import RowsError
from ....core.step_keys import without_log
from ....envs.runtime.stacking import zero_where
from ....transport import ClientInterface, Disconnected, Unanswered
from ...shared.filming import Filming
from ..compatibility import RowCheck, agent_spaces
from ..context import RoleContext
from ..outbox import Outbox
from ..run_state import STEPS, RunState
from ..timeouts import LAST_EPISODES
from .env_usage import EnvUsage
from .environments import Admission, EnvRegistry
from .episode_sender import EpisodeSender
from .evaluations import Evaluations
from .outgoing import Inserts
from .policy import Policy

__all__ = ['ACT', 'Actor', 'Record', 'Rolled']

log = logging.getLogger(__name__)

ACT: dict[base.Mode, str] = {'train': 'act', 'eval': 'act_eval'}
USAGE: dict[base.Mode, str] = {'train': 'usage/envs', 'eval': 'usage/eval_envs'}
LONGEST_WAIT = 0.05  # seconds of `batch_wait`; the first policy call compiles
MOST_REFUSED = 1000  # workers whose refusal is logged, each once


class Record(NamedTuple):
    """What one policy call leaves behind for replay and logger."""

    mode: base.Mode
    trans: base.Batch  # [n, ...]
    rows: Admission
    serials: base.Array
    seconds: float  # that the policy took


class Rolled(NamedTuple):
    """Steps of environments on the agent's device."""

    trans: base.Batch  # [K, N, ...]
    origin: base.Batch  # as of rows of workers, [N] each
    serials: base.Array  # [K]
    seconds: float  # that the actor has waited for them


class Actor:
    """Serves workers by `act`, `evaluate`, `usage` and `leave`; `record` follows `act`.

    replay: a client; a replay that is full makes acting wait. transitions, metrics:
    outboxes to the logger, which does not make acting wait.
    """

    def __init__(
        self,
        agent: base.Agent,
        replay: ClientInterface,
        transitions: Outbox,
        metrics: Outbox,
        run_state: RunState,
        context: RoleContext,
    ):
        self._settings = settings = context.settings
        self._health = context.health
        self._run_state = run_state
        self._replay = replay
        self._outboxes = (transitions, metrics)
        envs = settings.envs + settings.eval_envs
        self._policy = Policy(agent, envs, settings.batch_rows, context.health)
        rows = lambda slots, *args: {'rows': len(slots)}
        self._call_policy = context.timeline.wrap('policy', self._policy, rows)
        self._send_rows = context.timeline.wrap('insert', self._insert)
        self._policy_seconds = 0.0  # of the last call
        self._check = RowCheck(agent_spaces(agent)[0])
        self._refused: set[str] = set()  # workers whose refusal was logged
        self._registry = EnvRegistry()
        self._registry_change = threading.Condition()
        self._evaluations = Evaluations(settings.eval_every)
        self._inserts = {mode: Inserts(replay, mode) for mode in ACT}
        filming = Filming(
            settings.film_every, settings.film_frames, settings.episode_timeout
        )
        self._senders = {
            mode: EpisodeSender(mode, transitions, metrics, filming, settings.log_every)
            for mode in ACT
        }
        self._recording = {mode: threading.Lock() for mode in ACT}
        self._metrics = metrics
        self._env_usage = {mode: EnvUsage() for mode in ACT}
        self._usage_metrics: dict[base.Mode, base.Metrics] = {}  # to be passed on
        self._stopped = False

    # Methods for workers

    def check(self, mode: base.Mode, origin: Any, obs: Any) -> None:
        """Raises RowsError for rows that a worker of this run would not send."""
        self._check(mode, origin, obs)

    def note_refusal(self, worker: str, error: RowsError) -> None:
        """Logs why rows are refused, once per worker."""
        if worker not in self._refused and len(self._refused) < MOST_REFUSED:
            self._refused.add(worker)
            log.warning('%s: %s', worker, error)

    def act(
        self,
        mode: base.Mode,
        origin: base.Batch,
        obs: base.Batch,
        repeated: bool = False,
        anywhere: bool = False,
    ) -> tuple[dict[str, Any], Record | None]:
        """The answer to rows of workers, and what to `record`; see protocol.py.

        The rows have passed `check`, so an error here is not caused by a worker.
        anywhere: unknown environments may begin in mid-episode.
        """
        if self._run_state.stopped:
            self._refuse_if_failed()
            yes = np.ones(len(origin['envid']), bool)
            return {'acts': {}, 'reset': yes, 'stop': yes}, None
        rows = self._admit(mode, origin, obs['is_first'] | anywhere, repeated)
        begin = time.perf_counter()
        acts, outs = self._call_policy(rows.slots, rows.renewed, without_log(obs), mode)
        seconds = self._policy_seconds = time.perf_counter() - begin
        reset = obs['is_last'] | ~rows.admitted
        if reset.any():
            acts = {k: zero_where(reset, v) for k, v in acts.items()}
        answer = {'acts': acts, 'reset': reset, 'stop': rows.replaced}
        self._health.advance()
        trans = {**obs, **acts, **outs}
        return answer, Record(mode, trans, rows, origin['serial'], seconds)

    def batch_wait(self) -> float:
        """Seconds that a policy call waits for the rows of the other environments.

        Rows that come too late wait for a whole further call, so waiting as long as a
        call takes costs at most what it saves. Beside a learner that keeps the device
        busy calls are slow, and otherwise each would serve half of the environments.
        """
        return max(self._settings.max_wait, min(self._policy_seconds, LONGEST_WAIT))

    def evaluate(
        self, worker_id: base.Array, envid: int, period: int
    ) -> dict[str, Any]:
        """Blocks until an evaluation later than `period` is due; see protocol.py."""
        now, over = self._evaluations.await_due(worker_id, int(envid), period)
        self._refuse_if_failed()
        return {'period': now, 'stop': over}

    def usage(
        self, worker_id: base.Array, is_eval: bool, figures: Mapping[str, Any]
    ) -> None:
        """Adds up what the workers use, for `record` to pass on once all have said it.

        Not from here, since an error of the logger is none of this worker.
        """
        mode: base.Mode = 'eval' if is_eval else 'train'
        metrics = self._env_usage[mode].put(worker_id.tobytes(), figures)
        if metrics:
            self._usage_metrics[mode] = metrics

    def leave(self, worker_id: base.Array) -> None:
        """A worker is about to end."""
        self._evaluations.leave(worker_id)
        for usage in self._env_usage.values():
            usage.leave(worker_id.tobytes())
        with self._registry_change:
            self._registry.leave(worker_id)
            self._registry_change.notify_all()
        # Without the lock, since this may wait as long as the policy compiles.
        self._policy.shrink(self._used_slots)

    # What follows an answer

    def record(self, record: Record | None) -> None:
        """Passes transitions on to replay, which may make it wait, and to the logger.

        To be called in the order of the actions.
        """
        if record is None:
            return
        mode, trans, rows, serials, seconds = record
        kept = rows.admitted
        if not kept.all():
            trans = {k: v[kept] for k, v in trans.items()}
        with self._recording[mode]:
            waited = 0.0
            if kept.any():
                waited = self._send_rows(mode, trans, rows.streams[kept], serials[kept])
                envids, steps = rows.envids[kept], self._run_state.steps
                self._senders[mode].add(trans, envids, serials[kept], steps)
            self._count(mode, len(kept), int((~kept).sum()), seconds, waited)

    def record_rollout(self, rolled: Rolled) -> None:
        """The same for steps of environments on the device, in one message."""
        trans, origin, serials, seconds = rolled
        steps, envs = trans['is_first'].shape
        rows = self._admit('train', origin, trans['is_first'][0], False)
        flat = {k: v.reshape(-1, *v.shape[2:]) for k, v in trans.items()}
        with self._recording['train']:
            streams = np.tile(rows.streams, steps)
            waited = self._send_rows('train', flat, streams, np.repeat(serials, envs))
            sender = self._senders['train']
            for number, serial in enumerate(serials):
                step = {k: v[number] for k, v in trans.items()}
                same = np.full(envs, serial)
                sender.add(step, rows.envids, same, self._run_state.steps)
            self._count('train', steps * envs, 0, seconds, waited)

    def _count(
        self, mode: base.Mode, rows: int, resets: int, seconds: float, waited: float
    ) -> None:
        envs = self._registry.count(mode)
        most = max(1, min(envs, self._settings.rows_limit))
        metrics = {
            'envs': envs,
            'batch_rows': rows,
            'batch_fill': min(1.0, rows / most),
            'policy_ms': 1000 * seconds,
            'replay_wait_ms': 1000 * waited,
        }
        self._senders[mode].count(rows, resets, metrics, self._run_state.steps)
        if used := self._usage_metrics.pop(mode, None):
            self._metrics.put(used, USAGE[mode], self._run_state.steps)

    # End

    def stop(self) -> None:
        """Ends all waiting. What replay has not acknowledged yet is given up."""
        self._stopped = True
        self._evaluations.stop()
        self._replay.close()

    def await_leaving(self, timeout: float) -> None:
        """Waits until all workers have heard that the run is over and have left."""
        deadline = time.monotonic() + timeout
        with self._registry_change:
            self._registry_change.wait_for(lambda: not len(self._registry), timeout)
        self._evaluations.await_empty(max(0.0, deadline - time.monotonic()))

    def close(self) -> None:
        """Sends what is left for the logger, as soon as no more is recorded, and waits
        until the logger has all of it or is late."""
        for sender in self._senders.values():
            sender.close(self._run_state.steps)
        seconds = 0.0 if self._health.is_gone('logger') else LAST_EPISODES
        deadline = time.monotonic() + seconds
        for outbox in self._outboxes:
            outbox.flush(max(0.0, deadline - time.monotonic()))

    def _admit(
        self, mode: base.Mode, origin: base.Batch, is_first: base.Array, repeated: bool
    ) -> Admission:
        envids, worker_ids = origin['envid'], origin['worker_id']
        with self._registry_change:
            some_left = self._registry.sweep()
            rows = self._registry.admit(mode, envids, worker_ids, is_first, repeated)
        if some_left:
            self._policy.shrink(self._used_slots)
        return rows

    def _insert(
        self,
        mode: base.Mode,
        trans: base.Batch,
        streams: base.Array,
        serials: base.Array,
    ) -> float:
        """Sends rows to replay; seconds that this has taken."""
        begin = time.perf_counter()
        try:
            progress = self._inserts[mode].add(without_log(trans), streams, serials)
        except Disconnected:
            if not self._stopped:
                raise
            progress = None
        if progress is not None:
            self._run_state.advance(progress.steps)
            self._evaluations.advance(progress.steps)
            if progress.stop:
                self._run_state.stop(STEPS)
        return time.perf_counter() - begin

    def _refuse_if_failed(self) -> None:
        """Leaves a worker to the next agent process if this one fails."""
        if self._run_state.failed:
            raise Unanswered('The agent fails.')

    def _used_slots(self) -> int:
        return self._registry.slots
