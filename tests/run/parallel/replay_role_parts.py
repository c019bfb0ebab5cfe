"""Parts for tests of the replay role: its service, alone and behind a server."""

import contextlib

import data_parts as parts
from data_parts import DEADLINE, Worker, make_rows

from embodied.core.checkpoint import Checkpoint
from embodied.run.parallel import parallel_replay, protocol
from embodied.run.parallel.context import RoleContext
from embodied.run.parallel.replay.buffer import Buffer
from embodied.run.parallel.replay.replay_service import ReplayService


def make_service(logdir, replay=None, stream=parts.make_stream, **changes):
    context = parts.make_context(logdir, **changes)
    replay = parts.make_replay() if replay is None else replay
    health = context.health
    train = Buffer(replay, stream, ('train', 'report'), health)
    evaluation = Buffer(parts.make_replay(), parts.make_stream, ('eval',), health)
    return ReplayService(train, evaluation, context)


def fill(service, serials, count=4):
    for serial in serials:
        answer = service.add_batch(*make_rows(count, serial))
    return answer


def owed(service, number=0):
    """Batches until the end of a run whose steps are reached."""
    batches = []
    while batch := service.sample_batch_train(number + 3 * len(batches)):
        batches.append(batch)
    return batches


@contextlib.contextmanager
def served(service):
    """The service behind a real server, and a way to connect to it."""
    context, addr = RoleContext(service.settings), service.settings.replay_addr
    server = context.make_server(addr, 'replay')
    for name in protocol.REPLAY:
        server.bind(name, getattr(service, name), once=True)
    with contextlib.ExitStack() as stack:
        stack.enter_context(server)
        yield lambda: stack.enter_context(
            contextlib.closing(context.make_client(addr, 'test'))
        )


@contextlib.contextmanager
def running(logdir, replay=parts.make_replay, stream=parts.make_stream, **changes):
    """The role as its entry function starts it, and a way to connect to it."""
    args = parts.make_args(logdir, **changes)
    context, addr = RoleContext.of(args), args.replay_addr
    role = Worker(parallel_replay, replay, parts.make_replay, stream, args)
    with contextlib.ExitStack() as stack:
        connect = lambda: stack.enter_context(
            contextlib.closing(context.make_client(addr, 'test'))
        )
        try:
            yield connect, context.settings
        finally:
            role.check()
        told = connect().call('finish')
        role.join()
        del told  # its answer may be lost when the server goes


def save(service, logdir):
    checkpoint = Checkpoint(logdir / 'ckpt')
    checkpoint.add('replay', service)
    checkpoint.save()
    checkpoint.wait()


def load(service, logdir):
    checkpoint = Checkpoint(logdir / 'ckpt')
    checkpoint.add('replay', service)
    checkpoint.load()


def add(replay, serials):
    for serial in serials:
        replay.call('add_batch', *make_rows(4, serial)).result(DEADLINE)
