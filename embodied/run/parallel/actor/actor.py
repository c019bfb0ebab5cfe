"""Actor: chooses actions for all environments, passes on what they experience."""

import contextlib
import functools
import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ....core import base
from ....core.errors import RowsError
from ....envs.runtime.stacking import zero_where
from ....transport import (
    ClientInterface,
    Disconnected,
    RefusedRows,
    Request,
    ServerInterface,
    Unanswered,
    current_requests,
)
from ...shared.filming import Filming
from ..address_book import address_book
from ..compatibility import RowCheck, agent_spaces, declare
from ..context import make_client, make_server
from ..outbox import LOG_QUEUE, Outbox
from ..run_state import FAILURE, STEPS, RunState
from ..settings import ParallelSettings
from ..supervision.health import health
from .environments import Admission, EnvRegistry
from .episode_sender import EpisodeSender
from .outgoing import Inserts, Progress
from .policy import Policy

__all__ = ['Actor', 'Record', 'parallel_actor']

log = logging.getLogger(__name__)

ACT: dict[base.Mode, str] = {'train': 'act', 'eval': 'act_eval'}
FAREWELL = 5.0  # seconds for workers to be told of the end, and for the logger
MOST_PATIENCE = 0.05  # seconds; the first policy call compiles
MOST_REFUSED = 1000  # workers whose refusal is logged, each once


def parallel_actor(
    agent: base.Agent, barrier: threading.Barrier, args: Mapping[str, Any]
) -> None:
    """Serves actions until the session that travels on the barrier is stopped."""
    settings = ParallelSettings.read(args)
    session = RunState.of(barrier)
    ends: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()
    with contextlib.ExitStack() as stack:
        stack.enter_context(session.acting())
        replay = make_client(settings.replay_addr, 'actor', settings)
        stack.callback(replay.close)
        transitions, metrics = _outbox('tran', settings), _outbox('add', settings)
        stack.callback(transitions.close)
        stack.callback(metrics.close)
        actor = Actor(agent, replay, transitions, metrics, session, settings)
        declared = declare(*agent_spaces(agent))
        server = make_server(settings.actor_addr, 'actor', settings, declared)
        _bind(server, actor, settings, ends.put)
        # Wait for the checkpoint: acting with fresh weights would fill replay with
        # noise.
        barrier.wait()
        server.start(block=False)
        stack.callback(actor.close)
        stack.callback(server.close)
        stack.callback(actor.stop)
        for wait in (session.wait, server.wait):
            threading.Thread(target=_report, args=(wait, ends.put), daemon=True).start()
        error = ends.get()
        if error is not None:
            session.stop(FAILURE)
            raise error
        actor.stop()
        if not session.failed:
            actor.dismiss(FAREWELL)


class Record(NamedTuple):
    """What one policy call leaves behind for replay and logger."""

    mode: base.Mode
    trans: base.Batch  # [n, ...]
    rows: Admission
    serials: base.Array
    seconds: float  # that the policy took


class Actor:
    """`act`, `evaluate` and `leave` serve environment workers; `record` follows `act`.

    replay: a client, which may make acting wait; transitions, metrics: what goes to
    the logger, which may not.
    """

    def __init__(
        self,
        agent: base.Agent,
        replay: ClientInterface,
        transitions: Outbox,
        metrics: Outbox,
        session: RunState,
        settings: ParallelSettings,
    ):
        envs = settings.envs + settings.eval_envs
        self._policy = Policy(agent, envs, settings.batch_rows)
        self._registry = EnvRegistry()
        self._check = RowCheck(agent_spaces(agent)[0])
        self._refused: set[str] = set()  # workers that were told so
        self._replay = replay
        self._session = session
        self._rows_limit = settings.rows_limit
        self._max_wait = settings.max_wait
        self._policy_seconds = 0.0  # of the last call
        self._eval_every = settings.eval_every
        filming = Filming(
            settings.film_every, settings.film_frames, settings.episode_timeout
        )
        self._outboxes = (transitions, metrics)
        self._inserts = {mode: Inserts(replay, mode) for mode in ACT}
        self._senders = {
            mode: EpisodeSender(mode, transitions, metrics, filming, settings.log_every)
            for mode in ACT
        }
        self._change = threading.Condition()  # of the fields below
        self._committed: int | None = None  # steps in replay, once it has told us
        self._stopped = False
        self._evaluators: dict[int, bytes] = {}  # sessions by first environment

    def check(self, mode: base.Mode, origin: Any, obs: Any) -> None:
        """Raises RowsError for rows that a worker of this run would not send."""
        self._check(mode, origin, obs)

    def note_refusal(self, worker: str, error: RowsError) -> None:
        """Logs it, once per worker."""
        if worker not in self._refused and len(self._refused) < MOST_REFUSED:
            self._refused.add(worker)
            log.warning('%s: %s', worker, error)

    def act(
        self,
        mode: base.Mode,
        origin: base.Batch,
        obs: base.Batch,
        repeated: bool = False,
    ) -> tuple[dict[str, Any], Record | None]:
        """The answer to rows of workers, and what to `record`; see protocol.py.

        The rows have passed `check`, so what goes wrong here is no worker's mistake.
        """
        envids, sessions = origin['envid'], origin['session']
        if self._session.stopped:
            self._leave_to_next()
            yes = np.ones(len(envids), bool)
            return {'acts': {}, 'reset': yes, 'stop': yes}, None
        with self._change:
            some_left = self._registry.sweep()
            is_first = obs['is_first']
            rows = self._registry.admit(mode, envids, sessions, is_first, repeated)
        if some_left:
            self._policy.shrink(self._used_slots)
        visible = {k: v for k, v in obs.items() if not k.startswith('log/')}
        begin = time.perf_counter()
        acts, outs = self._policy(rows.slots, rows.renewed, visible, mode)
        seconds = self._policy_seconds = time.perf_counter() - begin
        reset = obs['is_last'] | ~rows.admitted
        if reset.any():
            acts = {k: zero_where(reset, v) for k, v in acts.items()}
        answer = {'acts': acts, 'reset': reset, 'stop': rows.replaced}
        health().advance()
        trans = {**obs, **acts, **outs}
        return answer, Record(mode, trans, rows, origin['serial'], seconds)

    def patience(self) -> float:
        """Seconds that a policy call waits for the rows of the other environments.

        Rows that come too late wait for a whole further call, so waiting as long as a
        call takes costs at most what it saves. Beside a learner that keeps the device
        busy calls are slow, and otherwise each would serve half of the environments.
        """
        return max(self._max_wait, min(self._policy_seconds, MOST_PATIENCE))

    def record(self, record: Record | None) -> None:
        """Passes transitions on to replay, which may take its time, and to the logger.

        To be called in the order of the actions, from one thread per mode.
        """
        if record is None:
            return
        mode, trans, rows, serials, seconds = record
        kept = rows.admitted
        if not kept.all():
            trans = {k: v[kept] for k, v in trans.items()}
        begin = time.perf_counter()
        if kept.any():
            self._insert(mode, trans, rows.streams[kept], serials[kept])
        waited = time.perf_counter() - begin
        sender, steps = self._senders[mode], self._session.steps
        if kept.any():
            sender.add(trans, rows.envids[kept], serials[kept], steps)
        envs = self._registry.count(mode)
        metrics = {
            'envs': envs,
            'batch_rows': len(kept),
            'batch_fill': len(kept) / max(1, min(envs, self._rows_limit)),
            'policy_ms': 1000 * seconds,
            'replay_wait_ms': 1000 * waited,
        }
        sender.count(len(kept), int((~kept).sum()), metrics, steps)

    def evaluate(self, session: base.Array, envid: int, period: int) -> dict[str, Any]:
        """Blocks until the period of `eval_every` steps after `period` has begun, or
        another worker has come in the place of this one."""
        envid, name = int(envid), session.tobytes()
        replaced = lambda: self._evaluators.get(envid) != name
        with self._change:
            self._evaluators[envid] = name
            self._change.notify_all()
            self._change.wait_for(
                lambda: self._stopped or replaced() or self._period() > period
            )
            self._leave_to_next()
            return {'period': self._period(), 'stop': self._stopped or replaced()}

    def leave(self, session: base.Array) -> None:
        """A worker says that it is about to end."""
        with self._change:
            self._registry.leave(session)
            name = session.tobytes()
            self._evaluators = {k: v for k, v in self._evaluators.items() if v != name}
            self._change.notify_all()
        # Not with the lock, for which others would wait as long as the policy compiles.
        self._policy.shrink(self._used_slots)

    def stop(self) -> None:
        """Wakes everything that waits; what replay has not acknowledged is given up."""
        with self._change:
            self._stopped = True
            self._change.notify_all()
        self._replay.close()

    def dismiss(self, timeout: float) -> None:
        """Waits until all workers have heard that the run is over and have left."""
        with self._change:
            gone = lambda: not len(self._registry) and not self._evaluators
            self._change.wait_for(gone, timeout)

    def close(self) -> None:
        """Sends the last entries of the journals, when nothing is recorded any more,
        and waits a while for the logger to take all that was sent."""
        for sender in self._senders.values():
            sender.close(self._session.steps)
        seconds = 0.0 if address_book().has_lost('logger') else FAREWELL
        deadline = time.monotonic() + seconds
        for outbox in self._outboxes:
            outbox.flush(max(0.0, deadline - time.monotonic()))

    def _insert(
        self,
        mode: base.Mode,
        trans: base.Batch,
        streams: base.Array,
        serials: base.Array,
    ) -> None:
        steps = {k: v for k, v in trans.items() if not k.startswith('log/')}
        try:
            progress = self._inserts[mode].add(steps, streams, serials)
        except Disconnected:
            if not self._stopped:
                raise
            return
        if progress is not None:
            self._advance(progress)

    def _advance(self, progress: Progress) -> None:
        with self._change:
            before = self._period()
            self._committed = progress.steps
            self._session.advance(progress.steps)
            if self._period() != before:
                self._change.notify_all()
        if progress.stop:
            self._session.stop(STEPS)

    def _leave_to_next(self) -> None:
        """Leaves a worker to the next agent if this one fails: its run is not over."""
        if self._session.failed:
            raise Unanswered('The agent fails.')

    def _used_slots(self) -> int:
        return self._registry.slots

    def _period(self) -> int:
        """Number of the current one; none has begun before replay has told its size."""
        return -1 if self._committed is None else self._committed // self._eval_every


def _outbox(method: str, settings: ParallelSettings) -> Outbox:
    logger = make_client(settings.logger_addr, 'actor', settings)
    return Outbox(logger, method, LOG_QUEUE)


def _bind(
    server: ServerInterface,
    actor: Actor,
    settings: ParallelSettings,
    fail: Callable[[Exception], None],
) -> None:
    for mode, method in ACT.items():
        server.bind_batched(
            method,
            functools.partial(_serve, actor, mode, fail),
            actor.record,
            batch=settings.rows_limit,
            max_wait=actor.patience,
            workers=settings.actor_threads,
            once=True,
        )
    # Each evaluation worker waits in a thread of its own, and one that has come in the
    # place of a dead one in another.
    server.bind('evaluate', actor.evaluate, workers=max(1, 2 * settings.eval_envs))
    server.bind('leave', actor.leave)


def _serve(
    actor: Actor,
    mode: base.Mode,
    fail: Callable[[Exception], None],
    origin: base.Batch,
    obs: base.Batch,
) -> tuple[dict[str, Any], Record | None]:
    """Handles a batch. Rows that do not fit are an error of the workers that sent them.

    An error of the agent ends the actor. Workers are not told of it, since it is not
    theirs: they ask again when the agent is back.
    """
    requests = current_requests()
    try:
        actor.check(mode, origin, obs)
    except RowsError as error:
        for worker in _senders(requests, error.rows):
            actor.note_refusal(worker, error)
        if error.rows:
            raise RefusedRows(error.rows, error) from error
        raise
    try:
        return actor.act(mode, origin, obs, any(x.repeat for x in requests))
    except Unanswered:
        raise
    except Exception as error:
        fail(error)
        raise Unanswered(f'The agent fails: {error}') from error


def _senders(requests: Sequence[Request], rows: Sequence[int]) -> set[str]:
    """Names of the workers that sent these rows of a batch; of all for no rows."""
    owners = [request for request in requests for _ in range(max(1, request.rows))]
    chosen = [owners[row] for row in rows] if rows else requests
    return {request.name or request.client for request in chosen}


def _report(
    wait: Callable[[], Any], report: Callable[[Exception | None], None]
) -> None:
    """Waits and reports how that ended."""
    try:
        wait()
    except Exception as error:  # noqa: BLE001 (raised by the actor's own thread)
        report(error)
    else:
        report(None)
