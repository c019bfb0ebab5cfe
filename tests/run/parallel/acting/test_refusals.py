"""Workers that do not fit a run are refused and told why, and the run goes on."""

import contextlib
import logging
import threading

import elements
import numpy as np
import portal
import pytest
from acting_parts import CountingAgent, Env, Sinks
from data_parts import DEADLINE, Worker, make_args

from embodied import transport
from embodied.core.errors import RowsError
from embodied.run.parallel import parallel_actor, run_id
from embodied.run.parallel.compatibility import RowCheck, declare
from embodied.run.parallel.context import RoleContext
from embodied.run.parallel.env.worker import run_worker
from embodied.run.parallel.run_state import RunState
from embodied.run.parallel.settings import (
    FIRST_EVAL_ENV,
    MOST_ENVS,
    WorkerPlan,
)

BACKENDS = ['native', 'portal']
PLAN, OTHER, LAST = (WorkerPlan((envid,), False) for envid in (0, 1, 3))


class TellingAgent(CountingAgent):
    """Tells the spaces that it was made for, without `log/` and `reset`."""

    obs_space = {k: v for k, v in Env.obs_space.items() if not k.startswith('log/')}
    act_space = {'action': Env.act_space['action']}


def env_with(**changes):
    """An environment whose observations are others; None leaves one out."""

    class Changed(Env):
        obs_space = {
            k: v for k, v in {**Env.obs_space, **changes}.items() if v is not None
        }

        def step(self, action):
            obs = super().step(action)
            own = {k: np.zeros(v.shape, v.dtype) for k, v in changes.items() if v}
            return {k: v for k, v in {**obs, **own}.items() if k in self.obs_space}

    return Changed


LARGER = env_with(image=elements.Space(np.uint8, (8, 8, 3)))


class FewerActions(Env):
    act_space = {**Env.act_space, 'action': elements.Space(np.int32, (), 0, 4)}


@contextlib.contextmanager
def serving(agent, args):
    """An actor and its sinks, which must serve until the end of the block."""
    barrier = threading.Barrier(1)
    with Sinks(args) as sinks:
        actor = Worker(parallel_actor, agent, barrier, args)
        yield sinks
        actor.check()
        worker = Worker(run_worker, Env, LAST, args)
        rows = sinks.rows['add_batch']
        own = lambda: [x for *_, x in rows if x['index'] == LAST.indices[0]]
        sinks.wait_for(lambda: len(own()) >= 10)
        RunState.of(barrier).stop('SIGTERM')
        worker.join()
        actor.join()


@pytest.mark.parametrize(
    ('make_env', 'words'),
    [
        (
            LARGER,
            r'observation image: server has uint8 of shape \(4, 4, 3\), '
            r'client has uint8 of shape \(8, 8, 3\)',
        ),
        (
            env_with(step=elements.Space(np.float32)),
            r'observation step: server has int32 .* client has float32 of shape \(\)',
        ),
        (
            env_with(extra=elements.Space(np.float32)),
            'observation keys: server has done, image, .* client has done, extra, im',
        ),
        (
            FewerActions,
            'action action: server has int32 .* to 999999, client has int32 .* to 3',
        ),
    ],
    ids=['shape', 'dtype', 'key', 'actions'],
)
def test_a_worker_with_other_spaces_is_refused_by_the_handshake(
    tmp_path, caplog, make_env, words
):
    args = make_args(tmp_path)
    with serving(TellingAgent(), args) as sinks:
        with pytest.raises(transport.Refused, match=words) as error:
            run_worker(make_env, OTHER, args)
        assert str(error.value).startswith('actor refuses env1, because they differ')
        assert sinks.steps == 0
    told = [x for x in caplog.records if x.levelno == logging.WARNING]
    assert len(told) == 1 and told[0].getMessage().startswith('env1: refused')


def test_log_keys_are_free_and_may_come_late(tmp_path):
    class Logging(Env):
        def step(self, action):
            obs = super().step(action)
            if self.step_index > 1:
                obs['log/late'] = np.float64(self.step_index)
                # Frames of a film have one size, those of the log have any.
                obs['log/view'] = np.zeros((self.step_index, 4, 3), np.uint8)
            return obs

    args = make_args(tmp_path, film_every=0.1)
    with serving(TellingAgent(), args) as sinks:
        worker = Worker(run_worker, Logging, OTHER, args)
        sinks.wait_for(lambda: sinks.steps >= 40)
        assert not any('log/late' in row for *_, row in sinks.rows['add_batch'])
    worker.join()


SENT = {
    'image': (LARGER, r'uint8 of shape \(4, 4, 3\)', r'uint8 of shape \(8, 8, 3\)'),
    'step': (env_with(step=None), r'int32 of shape \(\)', 'nothing'),
}


@pytest.mark.parametrize('agent', [CountingAgent, TellingAgent])
@pytest.mark.parametrize('key', SENT)
def test_rows_that_do_not_fit_are_an_error_of_the_worker(tmp_path, agent, key):
    """Portal has no handshake, and not every agent tells its spaces."""
    args = make_args(tmp_path, transport='portal')
    with serving(agent(), args) as sinks:
        first = Worker(run_worker, Env, PLAN, args)
        sinks.wait_for(lambda: sinks.steps >= 10)
        make_env, run, sent = SENT[key]
        words = f"observation '{key}' is {run} in the run, and the worker sent {sent}"
        with pytest.raises(RowsError, match=words):
            run_worker(make_env, OTHER, args)
        first.check()


def make_rows(envid=1, **changes):
    origin = {
        'envid': np.int32(envid),
        'worker_id': np.arange(16, dtype=np.uint8),
        'serial': np.int64(0),
    }
    obs = Env(0).step({'reset': True, 'action': 0})
    for key, value in changes.items():
        part = origin if key in origin else obs
        part[key] = value
        if value is None:
            del part[key]
    return origin, obs


WRONG = {
    'extra dimension': [{k: v[None] for k, v in part.items()} for part in make_rows()],
    'shape': make_rows(image=np.zeros((5, 4, 3), np.uint8)),
    'dtype': make_rows(reward=np.int64(1)),
    'missing': make_rows(is_last=None),
    'not expected': make_rows(smell=np.float32(1)),
    'flag': make_rows(is_first=np.int32(1)),
    'no dict': [list(part.values()) for part in make_rows()],
    'nested': make_rows(image={'left': np.zeros((4, 4, 3), np.uint8)}),
    'number': make_rows(envid=MOST_ENVS),
    'negative': make_rows(envid=-1),
    'worker_id': make_rows(worker_id=np.zeros(3, np.uint8)),
    'no serial': make_rows(serial=None),
    'real serial': make_rows(serial=np.float64(0)),
    'log': make_rows(**{'log/step': np.complex64(1)}),
}


@pytest.mark.parametrize('name', WRONG)
def test_no_request_of_a_stock_portal_client_ends_the_actor(tmp_path, name):
    args = make_args(tmp_path, transport='portal')
    with serving(TellingAgent(), args) as sinks:
        first = Worker(run_worker, Env, PLAN, args)
        sinks.wait_for(lambda: sinks.steps >= 10)
        port = int(args.actor_addr.rpartition(':')[2])
        client = portal.Client(f'localhost:{port}')
        with pytest.raises(RuntimeError, match='RowsError'):
            client.act(*WRONG[name]).result(timeout=DEADLINE)
        client.close()
        first.check()


def test_a_wrong_number_in_a_batch_is_the_error_of_one_worker_only(tmp_path):
    class Slow(CountingAgent):
        go = threading.Event()

        def policy(self, *args, **kwargs):
            assert self.go.wait(DEADLINE)
            return super().policy(*args, **kwargs)

    args = make_args(tmp_path, max_wait=0.2)
    context = RoleContext.of(args)
    agent = Slow()
    with serving(agent, args), contextlib.ExitStack() as stack:
        clients = []
        for number in range(4):
            client = context.make_client(args.actor_addr, f'worker{number}')
            clients.append(stack.enter_context(client))
            client.connect(DEADLINE)
        numbers = (0, 1, MOST_ENVS, 2)  # The others come together, after the first.
        calls = [
            client.call('act', *make_rows(envid=number))
            for client, number in zip(clients, numbers, strict=True)
        ]
        agent.go.set()
        for call in (calls[0], calls[1], calls[3]):
            assert not call.result(DEADLINE)['stop']
        with pytest.raises(transport.RemoteError) as error:
            calls[2].result(DEADLINE)
        assert error.value.kind == 'RowsError'
        assert f'environment {MOST_ENVS}' in error.value.reason


def test_a_worker_of_another_run_is_refused(tmp_path):
    run, other, bare = (tmp_path / name for name in ('run', 'other', 'bare'))
    args = make_args(run)
    ids = [run_id.create(folder) for folder in (run, other)]
    with serving(CountingAgent(), args) as sinks:
        words = f'run: server has {ids[0]}, client has {ids[1]}'
        with pytest.raises(transport.Refused, match=words):
            run_worker(Env, OTHER, args.update(logdir=str(other)))
        # Who does not know the folder of the run may join.
        worker = Worker(run_worker, Env, OTHER, args.update(logdir=str(bare)))
        sinks.wait_for(lambda: sinks.steps >= 10)
    worker.join()


def test_a_worker_with_another_task_is_refused(tmp_path):
    bare = make_args(tmp_path)
    args, theirs = (
        elements.Config({**bare, 'task': task})
        for task in ('dummy_mixed', 'dummy_disc')
    )
    with serving(CountingAgent(), args) as sinks:
        words = 'task: server has dummy_mixed, client has dummy_disc'
        with pytest.raises(transport.Refused, match=words):
            run_worker(Env, OTHER, theirs)
        # Who does not say what it plays may join.
        worker = Worker(run_worker, Env, OTHER, bare)
        sinks.wait_for(lambda: sinks.steps >= 10)
    worker.join()


def test_a_run_keeps_its_id(tmp_path):
    assert run_id.read(tmp_path) == ''
    folder = tmp_path / 'run'
    found = {Worker(run_id.create, folder).join() for _ in range(4)}
    assert found == {run_id.read(folder)}
    assert run_id.create(tmp_path / 'other') not in found
    assert [path.name for path in folder.iterdir()] == ['run_id']


def test_an_agent_may_tell_only_what_it_uses():
    obs = {'image': elements.Space(np.uint8, (4, 4, 3))}
    assert declare(obs, {}) == {'observation image': 'uint8 of shape (4, 4, 3)'}
    check = RowCheck(obs)
    batch = lambda **changes: [
        {k: np.asarray(v)[None] for k, v in part.items()}
        for part in make_rows(**changes)
    ]
    with pytest.raises(RowsError, match="'image' is uint8"):
        check('train', *batch(image=np.zeros(3, np.uint8)))
    check('train', *batch(smell=np.float32(1)))
    with pytest.raises(RowsError, match="'smell' is float32 .* worker sent nothing"):
        check('train', *batch())
    check('eval', *batch(envid=FIRST_EVAL_ENV))
