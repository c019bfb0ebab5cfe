"""The actor answers workers, feeds replay, tells the logger, and knows when to stop."""

import contextlib
import socket
import threading

import numpy as np
import pytest
from acting_parts import CountingAgent, Env, Peers
from data_parts import DEADLINE, SHORT, Worker, is_waiting, make_args

from embodied import transport
from embodied.run.parallel import inserts, outbox, parallel_actor
from embodied.run.parallel.actor import Actor
from embodied.run.parallel.env import run_worker
from embodied.run.parallel.links import make_client
from embodied.run.parallel.session import STEPS, Session
from embodied.run.parallel.settings import ParallelSettings, WorkerPlan
from embodied.transport import addresses, hello, wire
from embodied.transport.packing import pack, unpack_value
from embodied.transport.unix_stream import SIZE

SESSION = np.arange(16, dtype=np.uint8)


class Stage:
    """An actor with real peers, and environments that are stepped by hand."""

    def __init__(self, stack, folder, agent=None, **changes):
        self.args = make_args(folder, **{'eval_envs': 2, **changes})
        self.settings = ParallelSettings.read(self.args)
        self.peers = stack.enter_context(Peers(self.args))
        self.agent = agent or CountingAgent()
        self.session = Session()
        boxes = []
        for method in ('tran', 'add'):
            client = make_client(self.args.logger_addr, 'test', self.settings)
            boxes.append(outbox.Outbox(client, method, 8))
            stack.callback(boxes[-1].close)
        replay = make_client(self.args.replay_addr, 'test', self.settings)
        stack.callback(replay.close)
        self.actor = Actor(self.agent, replay, *boxes, self.session, self.settings)
        self.serials = {}

    def act(self, *rows, mode='train', session=SESSION, **options):
        """Rows are (envid, step of the episode); an episode has 4 of them."""
        origin = {
            'envid': np.array([envid for envid, _ in rows], np.int32),
            'session': np.tile(session, (len(rows), 1)),
            'serial': np.array([self._serial(envid) for envid, _ in rows]),
        }
        steps = np.array([step for _, step in rows], np.int32)
        obs = {
            'step': steps,
            'image': np.zeros((len(rows), 4, 4, 3), np.uint8),
            'reward': np.ones(len(rows), np.float32),
            'is_first': steps == 0,
            'is_last': steps == 3,
            'is_terminal': steps == 3,
            'log/height': steps.astype(np.float32),
            'log/view': np.zeros((len(rows), 4, 4, 3), np.uint8),
        }
        return self.actor.act(mode, origin, obs, **options)

    def play(self, *rows, **options):
        answer, record = self.act(*rows, **options)
        self.actor.record(record)
        return answer

    def _serial(self, envid):
        self.serials[envid] = self.serials.get(envid, -1) + 1
        return self.serials[envid]

    def finish(self):
        """Waits until the peers know everything."""
        self.actor.close()


@pytest.fixture
def stage(tmp_path):
    with contextlib.ExitStack() as stack:
        yield lambda **options: Stage(stack, tmp_path, **options)


def test_transitions_are_stored_with_actions_and_latents_but_no_logs(stage):
    stage = stage()
    for step in range(3):
        answer = stage.play((1, step), (3, step))
        assert answer['acts']['action'].tolist() == [step, step]
        assert not answer['reset'].any()
        assert not answer['stop'].any()
    stage.peers.wait_for(lambda: stage.peers.steps == 6)
    rows = stage.peers.rows['add_batch']
    assert rows[0][2].keys() == {
        *('step', 'image', 'reward', 'is_first', 'is_last', 'is_terminal'),
        *('action', 'latent'),
    }
    streams = {stream for stream, _, _ in rows}
    assert len(streams) == 2
    for stream in streams:
        own = [(serial, row) for name, serial, row in rows if name == stream]
        assert [serial for serial, _ in own] == [0, 1, 2]
        assert [row['action'] for _, row in own] == [0, 1, 2]
        assert [row['latent'] for _, row in own] == [0.0, 10.0, 20.0]


def test_the_last_step_has_a_zero_action_and_asks_for_a_reset(stage):
    stage = stage()
    for step in range(3):
        stage.play((0, step), (1, step))
    answer = stage.play((0, 3), (1, 3))
    assert answer['reset'].all()
    assert answer['acts']['action'].tolist() == [0, 0]
    answer = stage.play((0, 0), (1, 0))
    assert not answer['reset'].any()
    assert answer['acts']['action'].tolist() == [4, 4]
    stage.peers.wait_for(lambda: stage.peers.steps == 10)
    last = [row for _, _, row in stage.peers.rows['add_batch'] if row['is_last']]
    assert [row['action'] for row in last] == [0, 0]


def test_the_logger_follows_episodes_without_images(stage):
    stage = stage(film_every=0.0)
    for step in range(4):
        stage.play((2, step))
        stage.play((4, step), mode='eval')
    stage.finish()
    rows = stage.peers.transitions
    keys = {'reward', 'is_first', 'is_last', 'serial', 'log/height', 'log/count'}
    assert all(row.keys() == keys for _, _, row in rows)
    for envid, is_eval in ((2, False), (4, True)):
        own = [row for number, flag, row in rows if (number, flag) == (envid, is_eval)]
        assert [row['log/height'] for row in own] == [0, 1, 2, 3]
    assert len(rows) == 8


def test_films_come_whole_under_the_name_of_their_mode(stage):
    for mode, envid, prefix in (('train', 0, 'episode'), ('eval', 5, 'eval')):
        part = stage()
        for step in range(4):
            part.play((envid, step), mode=mode)
        part.finish()
        films = [(p, m) for p, m, _ in part.peers.metrics if 'film/image' in m]
        assert [name for name, _ in films] == [prefix]
        assert films[0][1].keys() == {'film/image', 'film/log/view'}
        assert films[0][1]['film/image'].shape == (4, 4, 4, 3)


def test_evaluation_is_stored_apart_and_played_in_its_own_mode(stage):
    stage = stage()
    stage.play((0, 0), mode='train')
    stage.play((4, 0), (5, 0), mode='eval')
    stage.peers.wait_for(lambda: len(stage.peers.rows['add_batch_eval']) == 2)
    stage.peers.wait_for(lambda: stage.peers.steps == 1)
    assert stage.agent.calls == [(1, 'train'), (2, 'eval')]


def test_an_unknown_environment_in_mid_episode_leaves_no_trace(stage):
    stage = stage()
    answer = stage.play((0, 2), (1, 0))
    assert answer['reset'].tolist() == [True, False]
    assert answer['acts']['action'].tolist() == [0, 0]
    answer = stage.play((0, 0), (1, 1))
    assert answer['reset'].tolist() == [False, False]
    assert answer['acts']['action'].tolist() == [0, 1]
    stage.finish()
    stage.peers.wait_for(lambda: stage.peers.steps == 3)
    stored = [(serial, row['step']) for _, serial, row in stage.peers.rows['add_batch']]
    assert sorted(stored) == [(0, 0), (1, 0), (1, 1)]
    assert {envid for envid, _, _ in stage.peers.transitions} == {0, 1}
    assert len(stage.peers.transitions) == 3


def test_a_batch_of_strangers_stores_nothing_at_all(stage):
    stage = stage()
    assert stage.play((0, 2), (1, 2))['reset'].all()
    stage.play((0, 0))
    stage.peers.wait_for(lambda: stage.peers.steps == 1)


def test_a_new_session_starts_a_fresh_carry_and_a_new_stream(stage):
    stage = stage()
    for step in (0, 1, 2):
        stage.play((0, step), (1, step))
    other = SESSION + 1
    answer = stage.play((0, 0), session=other)
    assert answer['acts']['action'].tolist() == [0]
    answer = stage.play((0, 3), (1, 3))
    assert answer['stop'].tolist() == [True, False]
    assert stage.play((1, 0))['acts']['action'].tolist() == [4]
    stage.peers.wait_for(lambda: stage.peers.steps == 9)
    assert len({stream for stream, _, _ in stage.peers.rows['add_batch']}) == 3


def test_a_first_step_that_another_actor_may_have_stored_is_played_again(stage):
    stage = stage()
    assert stage.play((0, 0), repeated=True)['reset'].all()
    assert not stage.play((0, 0))['reset'].any()


def test_acting_waits_for_replay(stage):
    stage = stage()
    stage.peers.open['add_batch'].clear()
    passed = threading.Semaphore(0)

    def play():
        for step in range(20):
            stage.play((0, step % 4))
            passed.release()

    player = Worker(play)
    for _ in range(inserts.UNANSWERED):
        assert passed.acquire(timeout=DEADLINE)
    assert not passed.acquire(timeout=SHORT)
    stage.peers.open['add_batch'].set()
    player.join()
    stage.peers.wait_for(lambda: stage.peers.steps == 20)
    serials = [serial for _, serial, _ in stage.peers.rows['add_batch']]
    assert serials == list(range(20))


def test_evaluation_goes_on_while_training_waits(stage):
    stage = stage()
    stage.peers.open['add_batch'].clear()
    player = Worker(lambda: [stage.play((0, step % 4)) for step in range(20)])
    for step in range(20):
        stage.play((4, step % 4), mode='eval')
    stage.peers.wait_for(lambda: len(stage.peers.rows['add_batch_eval']) == 20)
    assert stage.peers.steps == 0
    stage.peers.open['add_batch'].set()
    player.join()


def test_a_silent_logger_does_not_hold_up_acting(stage):
    stage = stage(log_every=-1.0)
    for name in ('tran', 'add'):
        stage.peers.open[name].clear()
    for step in range(120):
        stage.play((0, step % 4))
    stage.peers.wait_for(lambda: stage.peers.steps == 120)
    for name in ('tran', 'add'):
        stage.peers.open[name].set()
    stage.finish()
    stage.play((0, 0))
    stage.finish()
    metrics = [m for prefix, m, _ in stage.peers.metrics if prefix == 'actor']
    assert metrics[-1]['dropped'] > 0
    assert metrics[-1]['batch_rows'] == 1


def test_messages_carry_the_steps_that_replay_has_committed(stage):
    stage = stage(log_every=-1.0)
    for step in range(12):
        stage.play((0, step % 4), (1, step % 4))
        stage.peers.wait_for(lambda step=step: stage.peers.steps == 2 * step + 2)
    stage.finish()
    steps = [steps for prefix, _, steps in stage.peers.metrics if prefix == 'actor']
    assert steps == sorted(steps)
    assert 0 < steps[-1] <= 24
    assert stage.session.steps == steps[-1]


def test_replay_ends_the_run_and_every_worker_hears_it(stage):
    stage = stage()
    stage.peers.stop_at = 4
    step = 0
    while not stage.session.stopped:
        stage.play((0, step % 4))
        step += 1
    assert stage.session.reason == STEPS
    calls = len(stage.agent.calls)
    answer, record = stage.act((0, 1), (1, 0))
    assert answer['stop'].all()
    assert record is None
    assert len(stage.agent.calls) == calls


def test_stopping_frees_those_who_wait_for_replay(stage):
    stage = stage()
    stage.peers.open['add_batch'].clear()
    player = Worker(lambda: [stage.play((0, step % 4)) for step in range(9)])
    stage.session.stop('SIGTERM')
    stage.actor.stop()
    player.join()


def test_evaluations_are_due_once_in_each_period(stage):
    stage = stage(eval_every=50)
    waiting = Worker(stage.actor.evaluate, SESSION, 4, -1)
    assert is_waiting(waiting)
    step = 0

    def play_until(steps):
        nonlocal step
        while stage.session.steps < steps:
            stage.play((0, step % 4))
            step += 1

    play_until(1)
    assert waiting.join() == {'period': 0, 'stop': False}
    waiting = Worker(stage.actor.evaluate, SESSION, 4, 0)
    play_until(20)
    assert is_waiting(waiting)
    play_until(160)
    assert waiting.join()['period'] >= 1
    assert stage.actor.evaluate(SESSION, 4, 2) == {'period': 3, 'stop': False}
    waiting = Worker(stage.actor.evaluate, SESSION, 4, 3)
    stage.actor.stop()
    assert waiting.join()['stop']


def test_a_worker_that_comes_back_ends_the_wait_of_the_one_that_died(stage):
    evaluate = stage(eval_every=50).actor.evaluate
    dead = Worker(evaluate, SESSION, 4, -1)
    assert is_waiting(dead)
    back = Worker(evaluate, SESSION + 1, 4, -1)
    assert dead.join()['stop'] and is_waiting(back)


# With sockets.


@contextlib.contextmanager
def running(agent, barrier, args):
    """The actor in a thread, ended with the session of the barrier."""
    thread = Worker(parallel_actor, agent, barrier, args)
    try:
        yield thread
    finally:
        Session.of(barrier).stop('SIGTERM')


@pytest.mark.parametrize('backend', ['zmq', 'portal'])
def test_workers_play_until_replay_has_enough(tmp_path, backend):
    args = make_args(tmp_path, envs=6, actor_batch=4, transport=backend)
    agent, barrier = CountingAgent('array'), threading.Barrier(1)
    plans = [WorkerPlan((0, 1, 2), False), WorkerPlan((3,), False)]
    plans += [WorkerPlan((4, 5), False), WorkerPlan((6,), True)]
    with (
        Peers(args, stop_at=200) as peers,
        running(agent, barrier, args) as actor,
    ):
        workers = [Worker(run_worker, Env, plan, args) for plan in plans]
        for worker in workers:
            worker.join()
        actor.join()
    assert 200 <= peers.steps <= 200 + 6 * inserts.UNANSWERED
    streams = {}
    for stream, serial, row in peers.rows['add_batch']:
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


def test_nobody_is_served_before_the_checkpoint_is_restored(tmp_path):
    args = make_args(tmp_path)
    agent, barrier = CountingAgent(), threading.Barrier(2)
    with Peers(args, stop_at=5), running(agent, barrier, args) as actor:
        worker = Worker(run_worker, Env, WorkerPlan((0,), False), args)
        assert is_waiting(worker)
        assert agent.calls == []
        barrier.wait(DEADLINE)
        worker.join()
        actor.join()
    assert agent.calls


def test_an_error_of_the_agent_ends_the_actor_with_it(tmp_path):
    args = make_args(tmp_path)
    agent, barrier = CountingAgent(), threading.Barrier(1)
    agent.error = ZeroDivisionError('in the policy')
    with Peers(args), running(agent, barrier, args) as actor:
        worker = Worker(run_worker, Env, WorkerPlan((0,), False), args)
        with pytest.raises(ZeroDivisionError, match='in the policy'):
            actor.join()
        with pytest.raises(transport.RemoteError, match='in the policy'):
            worker.join()


def test_workers_outlive_an_actor_that_fails(tmp_path):
    args = make_args(tmp_path)
    agent, barrier = CountingAgent(), threading.Barrier(1)
    with Peers(args) as peers:
        first = Worker(parallel_actor, CountingAgent(), threading.Barrier(1), args)
        worker = Worker(run_worker, Env, WorkerPlan((0, 1), False), args)
        peers.wait_for(lambda: peers.steps >= 20)
        peers.failing = True
        with pytest.raises(transport.RemoteError, match='replay is failing'):
            first.join()
        before, peers.failing = peers.steps, False
        with running(agent, barrier, args):
            peers.wait_for(lambda: peers.steps >= before + 20)
        worker.join()
    rows = {stream: [] for stream, _, _ in peers.rows['add_batch']}
    assert len(rows) == 2  # The worker and its session are the same.
    for stream, serial, row in peers.rows['add_batch'][before:]:
        rows[stream].append((serial, int(row['step'])))
    for stream in rows.values():
        # Unknown in mid-episode, each environment was told to begin anew.
        assert [step for _, step in stream] == [i % 4 for i in range(len(stream))]
        serials = [serial for serial, _ in stream]
        assert serials == list(range(serials[0], serials[0] + len(serials)))


def test_a_repeated_request_is_answered_from_memory(tmp_path):
    args = make_args(tmp_path)
    agent, barrier = CountingAgent(), threading.Barrier(1)
    origin = {
        'envid': np.zeros(1, np.int32),
        'session': SESSION[None],
        'serial': np.zeros(1, np.int64),
    }
    obs = {'is_first': np.ones(1, bool), 'is_last': np.zeros(1, bool)}
    obs['reward'] = np.zeros(1, np.float32)
    with Peers(args) as peers, running(agent, barrier, args):
        for _ in range(3):
            answer = ask_once_more(args, 'act', origin, obs)
            assert answer['acts']['action'].tolist() == [0]
            assert not answer['reset'].any()
        peers.wait_for(lambda: peers.steps == 1)
    assert len(agent.calls) == 1


def ask_once_more(args, method, *values):
    """Sends call number 1 of one and the same client, on a connection of its own."""
    settings = ParallelSettings.read(args)
    identity = hello.Identity(shared=settings.shared).plain()
    words = {'name': 'x', 'session': bytes(16), 'nonce': bytes(16)}
    greeting = pack(wire.Kind.HELLO, {**words, 'identity': identity})
    request = pack(wire.Kind.REQUEST, values, 1, method.encode(), rows=1)
    with make_client(args.actor_addr, 'test', settings) as client:
        client.connect(DEADLINE)  # The actor may still be starting.
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(addresses.parse(args.actor_addr).unix)
        assert exchange(sock, greeting.frames()).kind == wire.Kind.WELCOME
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
