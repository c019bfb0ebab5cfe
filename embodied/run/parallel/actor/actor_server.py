"""Actor server: serves an actor to environment workers until the run is stopped."""

import contextlib
import functools
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ....core import base
from ....core.errors import RowsError
from ....transport import (
    RefusedRows,
    Request,
    ServerInterface,
    Unanswered,
    current_requests,
)
from ..compatibility import agent_spaces, declare
from ..context import RoleContext
from ..outbox import LOG_QUEUE, Outbox
from ..reference_calls import ActorCalls
from ..run_state import FAILURE, RunState
from ..settings import ParallelSettings
from ..timeouts import WORKERS_LEAVE
from .actor import ACT, Actor, Record
from .device_player import DevicePlayer

__all__ = ['parallel_actor']

NEEDED = ()  # args without which an actor cannot work


def parallel_actor(
    agent: base.Agent, barrier: threading.Barrier, args: Mapping[str, Any]
) -> None:
    """Serves actions until the run is stopped, see RunState.

    Waits at the barrier until the learner has restored the agent.
    """
    run_state = RunState.of(barrier)
    context = RoleContext.of(args, run_state.health, NEEDED, 'agent')
    settings = context.settings
    ends: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()
    with contextlib.ExitStack() as stack:
        stack.enter_context(run_state.acting())
        replay = context.make_client(settings.replay_addr, 'actor')
        stack.callback(replay.close)
        outboxes = _outbox('tran', context), _outbox('add', context)
        for outbox in outboxes:
            stack.callback(outbox.close)
        actor = Actor(agent, replay, *outboxes, run_state, context)
        declared = declare(*agent_spaces(agent))
        server = context.make_server(settings.actor_addr, 'actor', declared)
        _bind(server, actor, settings, ends.put)
        # Acting with fresh weights would fill replay with noise.
        barrier.wait()
        server.start(block=False)
        stack.callback(actor.close)
        stack.callback(server.close)
        stack.callback(actor.stop)
        waits: list[Callable[[], Any]] = [run_state.wait, server.wait]
        if settings.device_steps > 1:
            player = DevicePlayer(agent, actor, context)
            waits.append(functools.partial(player.run, run_state))
        for wait in waits:
            threading.Thread(target=_report, args=(wait, ends.put), daemon=True).start()
        error = ends.get()
        if error is not None:
            run_state.stop(FAILURE)
            raise error
        actor.stop()
        if not run_state.failed:
            actor.await_leaving(WORKERS_LEAVE)


def _outbox(method: str, context: RoleContext) -> Outbox:
    logger = context.make_client(context.settings.logger_addr, 'actor')
    return Outbox(logger, method, LOG_QUEUE)


def _bind(
    server: ServerInterface,
    actor: Actor,
    settings: ParallelSettings,
    fail: Callable[[Exception], None],
) -> None:
    handlers: dict[base.Mode, Callable] = {
        mode: functools.partial(_serve, actor, mode, fail) for mode in ACT
    }
    record: Callable[[Any], None] = actor.record
    if settings.transport == 'portal':
        calls = ActorCalls(actor, functools.partial(_act, actor, fail, anywhere=True))
        handlers['train'] = calls.or_ours(handlers['train'])
        record = calls.record
    for mode, method in ACT.items():
        server.bind_batched(
            method,
            handlers[mode],
            record,
            batch=settings.rows_limit,
            max_wait=actor.batch_wait,
            workers=settings.actor_threads,
            once=True,
        )
    # Each worker for evaluation waits in a thread of its own. While a worker replaces
    # a dead one, both have a thread.
    server.bind('evaluate', actor.evaluate, workers=max(1, 2 * settings.eval_envs))
    server.bind('usage', actor.usage)
    server.bind('leave', actor.leave)


def _serve(
    actor: Actor,
    mode: base.Mode,
    fail: Callable[[Exception], None],
    origin: base.Batch,
    obs: base.Batch,
) -> tuple[dict[str, Any], Record | None]:
    """Handles a batch. Rows that do not fit fail for the workers that sent them."""
    requests = current_requests()
    try:
        actor.check(mode, origin, obs)
    except RowsError as error:
        for worker in _senders(requests, error.rows):
            actor.note_refusal(worker, error)
        if error.rows:
            raise RefusedRows(error.rows, error) from error
        raise
    return _act(actor, fail, mode, origin, obs, any(x.repeat for x in requests))


def _act(
    actor: Actor, fail: Callable[[Exception], None], *args: Any, **options: Any
) -> tuple[dict[str, Any], Record | None]:
    """`actor.act`, an error of which ends the actor.

    It is not an answer to the workers, which did not cause it: they ask again when the
    agent is back.
    """
    try:
        return actor.act(*args, **options)
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
    """Waits, and reports the error that ended the waiting, or None."""
    try:
        wait()
    except Exception as error:  # noqa: BLE001 (raised by the actor's own thread)
        report(error)
    else:
        report(None)
