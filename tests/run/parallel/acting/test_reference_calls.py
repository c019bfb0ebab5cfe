"""Stock portal clients make the calls of the reference implementation."""

import contextlib
import threading

import data_parts as parts
import elements
import numpy as np
import portal
import pytest
from acting_parts import CountingAgent, Env, Sinks
from data_parts import DEADLINE, LENGTH, Worker

from embodied.run.parallel import parallel_actor, parallel_logger, parallel_replay
from embodied.run.parallel.context import RoleContext
from embodied.run.parallel.run_state import RunState


@contextlib.contextmanager
def stock(addr):
    port = addr.rpartition(':')[2]
    client = portal.Client(f'localhost:{port}', autoconn=False, logging=False)
    client.connect(DEADLINE)
    try:
        yield client
    finally:
        client.close()


@contextlib.contextmanager
def acting(logdir):
    """An actor, its options, what stands for replay and logger, and its run state."""
    args = parts.make_args(logdir, transport='portal')
    barrier = threading.Barrier(1)
    with Sinks(args) as sinks:
        actor = Worker(parallel_actor, CountingAgent(), barrier, args)
        yield args, sinks, RunState.of(barrier)
        RunState.of(barrier).stop('SIGTERM')
        actor.join()


def observe(env, action, envid, is_eval=False):
    obs = {key: np.asarray(value) for key, value in env.step(action).items()}
    return {'envid': envid, **obs, 'is_eval': is_eval}


RESET = {'action': 0, 'reset': True}


def play(client, env, envid, steps, is_eval=False, action=RESET):
    """Steps of an environment; the last action."""
    for _ in range(steps):
        obs = observe(env, action, envid, is_eval)
        action = client.act(obs).result(timeout=DEADLINE)
    return action


def test_environments_are_told_apart_by_number_and_mode(tmp_path):
    with acting(tmp_path) as (args, sinks, _), stock(args.actor_addr) as client:
        envs = [Env(index) for index in range(3)]
        actions = [RESET] * 3
        for _ in range(10):
            for index, env in enumerate(envs):
                actions[index] = play(client, env, index, 1, index == 2, actions[index])
        sinks.wait_for(lambda: len(sinks.rows['add_batch']) == 20)
        sinks.wait_for(lambda: len(sinks.rows['add_batch_eval']) == 10)
        assert actions[0].keys() == {'action', 'reset'}
        for index in range(3):
            rows = sinks.rows['add_batch_eval' if index == 2 else 'add_batch']
            own = [row for row in rows if row[2]['index'] == index]
            assert len({stream for stream, _, _ in own}) == 1
            assert [serial for _, serial, _ in own] == list(range(10))
            assert [row['step'] for *_, row in own] == [0, 1, 2, 3] * 2 + [0, 1]
            assert not {'envid', 'is_eval'} & own[0][2].keys()
            # The policy has a carry per environment; the last step is acted on, too.
            assert [row['action'] for *_, row in own][:3] == [0, 1, 2]


def test_an_environment_in_mid_episode_starts_a_new_stream(tmp_path):
    with acting(tmp_path) as (args, sinks, _):
        env = Env(0, length=100)
        with stock(args.actor_addr) as client:
            action = play(client, env, 0, 3)
        with stock(args.actor_addr) as client:
            action = play(client, env, 0, 3, action=action)
        assert not action['reset']
        sinks.wait_for(lambda: len(sinks.rows['add_batch']) == 6)
        rows = sinks.rows['add_batch']
        assert [row['step'] for *_, row in rows] == list(range(6))
        assert [row['action'] for *_, row in rows] == [0, 1, 2] * 2
        assert len({stream for stream, *_ in rows}) == 2


def test_a_number_that_is_used_twice_is_reported(tmp_path, caplog):
    with (
        acting(tmp_path) as (args, sinks, _),
        stock(args.actor_addr) as first,
        stock(args.actor_addr) as second,
    ):
        action = play(first, Env(0), 0, 1)
        play(second, Env(0), 0, 1)
        play(first, Env(0), 0, 1, action=action)
        assert 'Another worker plays environment 0' in caplog.text


@pytest.mark.parametrize(
    ('wrong', 'words'),
    [
        ({'envid': -1}, 'plays environment -1'),
        ({'reward': np.zeros(3)}, "'reward' is real numbers of shape"),
        ({'is_eval': 0.5}, "'is_eval' is an integer or a bool"),
    ],
)
def test_rows_that_do_not_fit_are_an_error_of_their_client(tmp_path, wrong, words):
    with acting(tmp_path) as (args, _, _), stock(args.actor_addr) as client:
        play(client, Env(0), 0, 1)
        with pytest.raises(RuntimeError, match=words):
            client.act({**observe(Env(1), RESET, 1), **wrong}).result(timeout=DEADLINE)
        with pytest.raises(RuntimeError, match="with the key 'envid'"):
            client.act({'reward': 0.0}).result(timeout=DEADLINE)
        play(client, Env(2), 2, 1)


def test_the_end_of_a_run_closes_the_connection(tmp_path):
    with acting(tmp_path) as (args, _, run_state), stock(args.actor_addr) as client:
        env = Env(0)
        action = play(client, env, 0, 2)
        run_state.stop('SIGTERM')
        with pytest.raises(portal.Disconnected):
            play(client, env, 0, 1000, action=action)


@contextlib.contextmanager
def running(role, make, args, addr, *end):
    """A role, and a stock client of it; the end of the run follows."""
    worker = Worker(role, *make, args)
    with stock(addr) as client:
        yield client
        worker.check()
        context = RoleContext.of(args)
        with contextlib.closing(context.make_client(addr, 'test')) as ours:
            told = ours.call('finish', *end)
            worker.join()
            del told  # its answer may be lost when the server goes
        with pytest.raises(portal.Disconnected):
            client.call('finish', *end).result(timeout=DEADLINE)


def test_replay_takes_transitions_and_serves_batches_without_numbers(tmp_path):
    args = parts.make_args(tmp_path, transport='portal', train_ratio=-1)
    make = parts.make_replay, parts.make_replay, parts.make_stream
    with running(parallel_replay, make, args, args.replay_addr) as client:
        call = lambda name, *args: client.call(name, *args).result(timeout=DEADLINE)
        envid, is_eval = np.arange(4), np.array([False, False, False, True])
        for serial in range(3 * LENGTH):
            steps, *_ = parts.make_rows(4, serial)
            rows = {**steps, 'envid': envid, 'is_eval': is_eval}
            assert call('add_batch', rows) == {}
        for _ in range(3):
            batch = call('sample_batch_train')
            assert batch['number'].shape == (3, LENGTH)
            # Rows of an environment follow each other.
            assert (np.diff(batch['number'], axis=1) == 1).all()
            latents = np.ones((3, LENGTH, 2), np.float32)
            update = {'stepid': batch['stepid'], 'dyn/deter': latents}
            assert call('update', update) is None
        for name in ('sample_batch_report', 'sample_batch_eval'):
            for _ in range(2):
                assert call(name)['number'].shape == (3, LENGTH)


def test_the_logger_takes_transitions_and_full_names(tmp_path):
    args = parts.make_args(tmp_path, transport='portal')
    entries = []
    make = (lambda: elements.Logger(elements.Counter(), [entries.extend]),)
    with running(parallel_logger, make, args, args.logger_addr, 30) as client:
        call = lambda name, *args: client.call(name, *args).result(timeout=DEADLINE)
        envid = np.array([0, 1])
        for step in range(3):
            rows = {
                'image': np.zeros((2, 4, 4, 3), np.uint8),
                'reward': np.array([1.0, 10.0], np.float32),
                'is_first': np.full(2, step == 0),
                'is_last': np.full(2, step == 2),
                'log/wood': np.array([step, step]),
            }
            is_eval = np.array([False, True])
            assert call('tran', {**rows, 'envid': envid, 'is_eval': is_eval}) is None
        assert call('add', {'train/loss': 0.5}) is None
    named = {name: value for _, name, value in entries}
    assert named['train/loss'] == 0.5
    assert (named['episode/score'], named['eval/score']) == (3.0, 30.0)
    assert {step for step, *_ in entries} == {30}
