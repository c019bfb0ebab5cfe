"""Replay server: serves the replay service of a run until the run ends."""

import contextlib
import queue
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ....core import base
from ....core.files import storage_errors
from ....processes.signals import StopSignals
from ....transport import ServerInterface
from .. import protocol
from ..context import RoleContext
from ..outbox import LOG_QUEUE, Outbox
from ..pickling import unpack
from ..reference_calls import ReplayCalls
from ..saves.coordinator import RoleSaves
from ..serving import Chore, serve
from ..supervision.health import Health
from .buffer import Buffer
from .ratio_record import RatioRecord
from .replay_service import ReplayService

__all__ = ['parallel_replay']

FINISHED = 'finished'


def parallel_replay(
    make_replay_train: Callable[[], Any] | bytes,
    make_replay_eval: Callable[[], Any] | bytes,
    make_stream: Callable[[Any, base.Mode], Any] | bytes,
    args: Mapping[str, Any],
    health: Health | None = None,
) -> str:
    """Serves replay until the run ends, then saves.

    Returns the name of a signal that came before the end, or ''.
    """
    context = RoleContext.of(args, health, name='replay')
    settings = context.settings
    server = context.make_server(settings.replay_addr, 'replay')
    events: queue.SimpleQueue = queue.SimpleQueue()
    with contextlib.ExitStack() as stack:
        stack.enter_context(storage_errors(settings.logdir))
        # Until the last save is made, which a signal must not interrupt.
        signals = stack.enter_context(StopSignals(events.put))
        parts = unpack(make_stream), server.empty, context
        buffer = _open_buffer(make_replay_train, ('train', 'report'), *parts)
        train = stack.enter_context(buffer)
        _note_loss(train, context)
        buffer = _open_buffer(make_replay_eval, ('eval',), *parts)
        evaluation = stack.enter_context(buffer)
        finish = lambda: events.put(FINISHED)
        service = ReplayService(train, evaluation, context, finish)
        saves = RoleSaves('replay', service, context)
        _continue_ratio(service, context)
        client = context.make_client(settings.logger_addr, 'replay')
        logger = Outbox(client, 'add', LOG_QUEUE)
        stack.callback(logger.close)
        _bind(server, service, context)
        server.bind(protocol.SAVE, saves.save)
        stack.callback(server.close)
        log = lambda: _log(service, (train, evaluation), logger, context)
        reason = serve(server, [Chore(settings.log_every, log)], events)
        saves.save()
    return '' if reason == FINISHED else signals.received or ''


def _bind(
    server: ServerInterface, service: ReplayService, context: RoleContext
) -> None:
    portal = context.settings.transport == 'portal'
    calls = ReplayCalls(service) if portal else service
    for name in protocol.REPLAY:
        method = getattr(calls, name, None) or getattr(service, name)
        method = context.timeline.wrap(name, context.health.counted(method))
        server.bind(name, method, once=True)


def _log(
    service: ReplayService,
    buffers: Sequence[Buffer],
    logger: Outbox,
    context: RoleContext,
) -> None:
    for buffer in buffers:
        _note_damages(buffer, context)
    for prefix, metrics in service.metrics().items():
        logger.put(metrics, prefix, service.steps)


@contextlib.contextmanager
def _open_buffer(
    make_replay: Callable[[], Any] | bytes,
    modes: Sequence[base.Mode],
    make_stream: Callable[[Any, base.Mode], Any],
    empty: Callable[..., base.Array],
    context: RoleContext,
) -> Iterator[Buffer]:
    """A buffer; damaged files become events, also those found while it is closed."""
    replay = unpack(make_replay)()
    buffer = Buffer(replay, make_stream, modes, context.health, empty)
    try:
        _note_damages(buffer, context)
        yield buffer
    finally:
        buffer.close()
        _note_damages(buffer, context)


def _note_loss(buffer: Buffer, context: RoleContext) -> None:
    """Notes steps that were lost with the memory of a machine.

    Steps count as soon as they are stored, so the number of steps goes back.
    """
    if buffer.lost:
        details = {'steps': buffer.lost, 'reason': 'not synced (replay.sync)'}
        context.note('lost', **details)


def _note_damages(buffer: Buffer, context: RoleContext) -> None:
    for damage in buffer.take_damages():
        context.note('damaged', **damage.details())


def _continue_ratio(service: ReplayService, context: RoleContext) -> None:
    """Continues with the ratios of the run, and records them before a step is added."""
    settings = context.settings
    record = RatioRecord(settings.checkpoints / 'replay', context.note)
    known = record.read()
    if known is not None:
        service.resume_ratio(known)
    if service.ratios == known:
        return
    record.write(service.ratios)
    if len(service.ratios.periods) > 1:
        details = {'step': service.steps, 'ratio': settings.train_ratio}
        context.note('train_ratio', **details)
