"""Actor as it is served: workers, checkpoints, errors and repeated requests."""

import contextlib
import socket
import threading

import numpy as np
import pytest
from acting_parts import CountingAgent, Env, Sinks
from data_parts import DEADLINE, Worker, is_waiting, make_args

from embodied import transport
from embodied.core.errors import ConfigError, RowsError
from embodied.run.parallel import parallel_actor
from embodied.run.parallel.actor import outgoing as inserts
from embodied.run.parallel.context import RoleContext
from embodied.run.parallel.env.worker import run_worker
from embodied.run.parallel.run_state import RunState
from embodied.run.parallel.settings import FIRST_EVAL_ENV, WorkerPlan
from embodied.transport import addresses
from embodied.transport.codec import frames as wire
from embodied.transport.codec.encoding import pack, unpack_value
from embodied.transport.handshake import identity as identities
from embodied.transport.wires.stream import SIZE

WORKER = np.arange(16, dtype=np.uint8)


@contextlib.contextmanager
def running(agent, barrier, args):
    """The actor in a thread, ended by the run state of the barrier."""
    thread = Worker(parallel_actor, agent, barrier, args)
    try:
        yield thread
    finally:
        RunState.of(barrier).stop('SIGTERM')


@pytest.mark.parametrize('backend', ['native', 'portal'])
def test_workers_play_until_replay_has_enough(tmp_path, backend):
    args = make_args(tmp_path, envs=6, actor_batch=4, transport=backend)
    agent, barrier = CountingAgent('array'), threading.Barrier(1)
    plans = [WorkerPlan((0, 1, 2), False), WorkerPlan((3,), False)]
    plans += [WorkerPlan((4, 5), False), WorkerPlan((FIRST_EVAL_ENV,), True)]
    with (
        Sinks(args, stop_at=200) as sinks,
        running(agent, barrier, args) as actor,
    ):
        workers = [Worker(run_worker, Env, plan, args) for plan in plans]
        for worker in workers:
            worker.join()
        actor.join()
    assert 200 <= sinks.steps <= 200 + 6 * inserts.UNANSWERED
    streams = {}
    for stream, serial, row in sinks.rows['add_batch']:
        streams.setdefault(stream, []).append((serial, row))
    assert len(streams) == 6
    for rows in streams.values():
        assert [serial for serial, _ in rows] == list(range(len(rows)))
        assert [row['step'] for _, row in rows] == [i % 4 for i in range(len(rows))]
        assert len({row['index'] for _, row in rows}) == 1
        # The environment did what the transition before says.
        for (_, before), (_, after) in zip(rows, rows[1:], strict=False):
            assert after['done'] == before['action']
    sizes = {rows for rows, mode in agent.calls if mode == 'train'}
    assert sizes <= {1, 2, 4}


def test_no_request_is_served_before_the_checkpoint_is_restored(tmp_path):
    args = make_args(tmp_path)
    agent, barrier = CountingAgent(), threading.Barrier(2)
    with Sinks(args, stop_at=5), running(agent, barrier, args) as actor:
        worker = Worker(run_worker, Env, WorkerPlan((0,), False), args)
        assert is_waiting(worker)
        assert agent.calls == []
        barrier.wait(DEADLINE)
        worker.join()
        actor.join()
    assert agent.calls


@pytest.mark.parametrize('backend', ['native', 'portal'])
@pytest.mark.parametrize('error', [ZeroDivisionError, ConfigError, RowsError])
def test_an_error_of_the_agent_ends_the_actor_and_no_worker(tmp_path, backend, error):
    args = make_args(tmp_path, transport=backend)
    agent = CountingAgent()
    agent.error = error('in the policy')
    with Sinks(args, stop_at=10) as sinks:
        barrier = threading.Barrier(1)
        with running(agent, barrier, args) as actor:
            worker = Worker(run_worker, Env, WorkerPlan((0,), False), args)
            with pytest.raises(error, match='in the policy'):
                actor.join()
        # It plays with the next actor, and was not told of the error.
        with running(CountingAgent(), threading.Barrier(1), args) as actor:
            worker.join()
            actor.join()
    assert sinks.steps >= 10


def test_workers_outlive_an_actor_that_fails(tmp_path):
    args = make_args(tmp_path)
    agent, barrier = CountingAgent(), threading.Barrier(1)
    with Sinks(args) as sinks:
        first = Worker(parallel_actor, CountingAgent(), threading.Barrier(1), args)
        worker = Worker(run_worker, Env, WorkerPlan((0, 1), False), args)
        sinks.wait_for(lambda: sinks.steps >= 20)
        sinks.failing = True
        with pytest.raises(transport.RemoteError, match='replay is failing'):
            first.join()
        before, sinks.failing = sinks.steps, False
        with running(agent, barrier, args):
            sinks.wait_for(lambda: sinks.steps >= before + 20)
        worker.join()
    rows = {stream: [] for stream, _, _ in sinks.rows['add_batch']}
    assert len(rows) == 2  # The worker is the same.
    for stream, serial, row in sinks.rows['add_batch'][before:]:
        rows[stream].append((serial, int(row['step'])))
    for stream in rows.values():
        # Unknown in mid-episode, each environment was told to reset.
        assert [step for _, step in stream] == [i % 4 for i in range(len(stream))]
        serials = [serial for serial, _ in stream]
        assert serials == list(range(serials[0], serials[0] + len(serials)))


def test_a_repeated_request_is_answered_from_memory(tmp_path):
    args = make_args(tmp_path)
    agent, barrier = CountingAgent(), threading.Barrier(1)
    origin = {
        'envid': np.zeros(1, np.int32),
        'worker_id': WORKER[None],
        'serial': np.zeros(1, np.int64),
    }
    obs = {'is_first': np.ones(1, bool), 'is_last': np.zeros(1, bool)}
    obs['reward'] = np.zeros(1, np.float32)
    with Sinks(args) as sinks, running(agent, barrier, args):
        for _ in range(3):
            answer = ask_once_more(args, 'act', origin, obs)
            assert answer['acts']['action'].tolist() == [0]
            assert not answer['reset'].any()
        sinks.wait_for(lambda: sinks.steps == 1)
    assert len(agent.calls) == 1


def ask_once_more(args, method, *values):
    """Sends call number 1 of one and the same client, on a connection of its own."""
    context = RoleContext.of(args)
    identity = identities.Identity(shared=context.settings.shared).plain()
    words = {'name': 'x', 'session': bytes(16), 'nonce': bytes(16)}
    opening = pack(wire.Kind.OPEN, {**words, 'identity': identity})
    request = pack(wire.Kind.REQUEST, values, 1, method.encode(), rows=1)
    with context.make_client(args.actor_addr, 'test') as client:
        client.connect(DEADLINE)  # The actor may still be starting.
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(addresses.parse(args.actor_addr).unix)
        assert exchange(sock, opening.frames()).kind == wire.Kind.ACCEPTED
        reply = exchange(sock, request.frames(0, mark=1))
        assert reply.kind == wire.Kind.REPLY
        return unpack_value(reply)


def exchange(sock, frames):
    """One message there and one back, by hand."""
    (head,) = frames
    sock.sendall(SIZE.pack(len(head)) + head)
    with sock.makefile('rb') as file:
        (size,) = SIZE.unpack(file.read(SIZE.size))
        return wire.unpack([file.read(size)])
