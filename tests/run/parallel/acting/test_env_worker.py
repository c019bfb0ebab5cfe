"""Workers send what is ready, do what they are told and leave when asked to."""

import functools
import os
import pickle
import signal
import subprocess
import sys
import threading

import elements
import numpy as np
import pytest
from acting_parts import Env
from data_parts import DEADLINE, Worker, make_args

from embodied import transport
from embodied.core.errors import ConfigError, EnvError, RoleError, SpaceError
from embodied.run.parallel import parallel_env, parallel_envs
from embodied.run.parallel.env.group import InlineGroup, ThreadGroup, make_group
from embodied.run.parallel.env.worker import run_worker
from embodied.run.parallel.settings import FIRST_EVAL_ENV, WorkerPlan
from embodied.run.parallel.supervision.health import Health

ACTION = {'action': np.int32(7), 'reset': np.bool_(False)}
RESET = {'action': np.int32(0), 'reset': np.bool_(True)}


class FakeActor:
    """A real server in the place of the actor, which notes each row.

    The action tells environment and serial; all stop after `rows` rows. Rows for
    which `unknown` says so are answered with reset. `hold` is called with the
    environments of each message before it is answered. Messages that wait together are
    one, unless they have more than `batch` rows; larger ones are refused.
    """

    def __init__(
        self,
        args,
        rows=10**9,
        periods=10**9,
        unknown=lambda *row: False,
        hold=lambda envids: None,
        batch=4096,
    ):
        self.hold = hold
        self.rows, self.left, self.evaluations = [], [], []
        self.messages = []  # environments of each message
        self.limit, self.periods, self.unknown = rows, periods, unknown
        self.change = threading.Condition()
        self.server = transport.Server(args.actor_addr, 'actor')
        for method in ('act', 'act_eval'):
            handler = functools.partial(self._act, method)
            self.server.bind_batched(
                method, handler, batch=batch, max_wait=0.0, workers=2
            )
        self.server.bind('evaluate', self._evaluate)
        self.server.bind('leave', self._leave)

    def __enter__(self):
        self.server.start(block=False)
        return self

    def __exit__(self, *exc):
        self.server.close()

    def of(self, envid):
        return [row for row in self.rows if row[1] == envid]

    def wait_for(self, condition):
        with self.change:
            assert self.change.wait_for(condition, DEADLINE)

    def _act(self, method, origin, obs):
        count = len(origin['envid'])
        with self.change:
            reset = obs['is_last'].copy()
            for i in range(count):
                envid, serial = int(origin['envid'][i]), int(origin['serial'][i])
                worker = origin['worker_id'][i].tobytes()
                row = {k: v[i] for k, v in obs.items()}
                self.rows.append((method, envid, serial, worker, row))
                reset[i] |= self.unknown(envid, serial)
            self.messages.append(origin['envid'].tolist())
            self.change.notify_all()
            stop = np.full(count, len(self.rows) >= self.limit)
        self.hold(origin['envid'].tolist())
        action = 1000 * (origin['envid'] + 1) + origin['serial'].astype(np.int32)
        return {'acts': {'action': action}, 'reset': reset, 'stop': stop}

    def _evaluate(self, worker_id, envid, period):
        with self.change:
            self.evaluations.append((period, len(self.rows)))
        return {'period': period + 1, 'stop': period + 1 >= self.periods}

    def _leave(self, worker_id):
        with self.change:
            self.left.append(worker_id.tobytes())
            self.change.notify_all()


def plan(*envids, is_eval=False):
    return WorkerPlan(envids, is_eval)


GROUPS = {'alone': (0,), 'together': (0, 1, 2)}


@pytest.mark.parametrize('envids', GROUPS.values(), ids=GROUPS)
def test_every_row_says_where_it_comes_from(tmp_path, envids):
    args = make_args(tmp_path)
    with FakeActor(args, rows=60) as actor:
        run_worker(Env, plan(*envids), args)
        actor.wait_for(lambda: actor.left)
    assert {row[0] for row in actor.rows} == {'act'}
    workers = {row[3] for row in actor.rows}
    assert len(workers) == 1
    assert actor.left == list(workers)
    for envid in envids:
        rows = actor.of(envid)
        assert [row[2] for row in rows] == list(range(len(rows)))
        assert {int(row[4]['index']) for row in rows} == {envid}
        assert [int(row[4]['step']) for row in rows] == [
            i % 4 for i in range(len(rows))
        ]
        done = [int(row[4]['done']) for row in rows]
        assert done == [0] + [1000 * (envid + 1) + i for i in range(len(rows) - 1)]


def test_two_workers_have_two_ids(tmp_path):
    args = make_args(tmp_path)
    with FakeActor(args, rows=10) as actor:
        for envid in (0, 1):
            run_worker(Env, plan(envid), args)
    assert len({row[3] for row in actor.rows}) == 2


def test_an_environment_starts_anew_when_it_is_told_to(tmp_path):
    args = make_args(tmp_path)
    with FakeActor(args, rows=8, unknown=lambda envid, serial: serial == 1) as actor:
        run_worker(Env, plan(0), args)
    steps = [int(row[4]['step']) for row in actor.rows]
    assert steps == [0, 1, 0, 1, 2, 3, 0, 1]


def test_messages_hold_no_more_rows_than_the_actor_takes(tmp_path):
    args = make_args(tmp_path, envs=8, actor_batch=2)
    with FakeActor(args, rows=80) as actor:
        run_worker(Env, plan(*range(5)), args)
    assert max(map(len, actor.messages)) == 2
    assert {row[1] for row in actor.rows} == set(range(5))


def test_environments_that_would_join_beyond_the_last_one_are_refused(tmp_path):
    args = make_args(tmp_path, envs=4)
    refused = pytest.raises(ConfigError, match='no environment 4.*Raise run.envs')
    with refused:
        parallel_envs(Env, Env, {**args, 'first_env': 4})
    with refused, pytest.warns(FutureWarning, match='run.first_env=4'):
        parallel_envs(Env, Env, {**args, 'replica': 4})  # its former name


def test_rows_do_not_wait_for_answers_that_come_from_far_away(tmp_path):
    args = make_args(tmp_path, actor_addr=f'tcp://localhost:{transport.free_port()}')
    seen = {0: threading.Event(), 1: threading.Event()}

    def hold(envids):
        for envid in envids:
            seen[envid].set()
        # The first answer is on its way until the other environment has come, too.
        assert seen[1].wait(DEADLINE)

    def hook(env, action):
        if env.index == 1:
            assert seen[0].wait(DEADLINE)

    with FakeActor(args, rows=40, hold=hold) as actor:
        run_worker(functools.partial(Env, hook=hook), plan(0, 1), args)
    assert actor.messages[:2] == [[0], [1]]
    for envid in (0, 1):
        serials = [row[2] for row in actor.of(envid)]
        assert serials == list(range(len(serials)))
        done = [int(row[4]['done']) for row in actor.of(envid)]
        assert done == [0] + [1000 * (envid + 1) + i for i in serials[:-1]]


def test_a_far_actor_that_fails_ends_the_worker(tmp_path):
    args = make_args(tmp_path, actor_addr=f'tcp://localhost:{transport.free_port()}')

    def hold(envids):
        raise ArithmeticError('no actions today')

    with (
        FakeActor(args, hold=hold),
        pytest.raises(transport.RemoteError, match='no actions today'),
    ):
        run_worker(Env, plan(0, 1, 2), args)


@pytest.mark.parametrize('slow', ['reset', 'step'])
def test_a_slow_environment_holds_up_no_other(tmp_path, slow):
    args = make_args(tmp_path)
    release = threading.Event()

    def hook(env, action):
        if env.index == 1 and bool(action['reset']) == (slow == 'reset'):
            assert release.wait(DEADLINE)

    make = functools.partial(Env, hook=hook)
    with FakeActor(args, rows=400) as actor:
        worker = Worker(run_worker, make, plan(0, 1, 2), args)
        actor.wait_for(lambda: min(len(actor.of(i)) for i in (0, 2)) >= 50)
        assert len(actor.of(1)) == (slow == 'step')
        release.set()
        worker.join()
    assert len(actor.of(1)) > 1


def test_rows_that_are_ready_together_travel_together(tmp_path):
    args = make_args(tmp_path, envs=8, actor_batch=8)
    together = threading.Barrier(4)
    make = functools.partial(Env, hook=lambda env, action: together.wait(DEADLINE))
    with FakeActor(args, rows=200) as actor:
        run_worker(make, plan(0, 1, 2, 3), args)
    # A busy machine may tear rows apart that became ready together, but not always.
    assert max(len(message) for message in actor.messages) == 4


def test_evaluation_plays_its_episodes_and_waits_for_the_next(tmp_path):
    counts = {'envs': 2, 'eval_envs': 2, 'eval_eps': 2, 'envs_per_worker': 2}
    args = make_args(tmp_path, **counts)
    with FakeActor(args, periods=3) as actor:
        parallel_env(Env, 2, args, is_eval=True)
        actor.wait_for(lambda: actor.left)
    rows_per_period = 2 * 2 * 4
    periods = [-1, 0, 1, 2]
    assert actor.evaluations == [(p, (p + 1) * rows_per_period) for p in periods]
    assert {row[0] for row in actor.rows} == {'act_eval'}
    for index in (0, 1):
        rows = actor.of(FIRST_EVAL_ENV + index)
        assert [int(row[4]['step']) for row in rows] == 6 * [0, 1, 2, 3]
        # They are numbered from 0 for their factory.
        assert {int(row[4]['index']) for row in rows} == {index}


def test_a_single_environment_runs_in_the_thread_of_its_worker():
    envs = []
    group = make_group([lambda: envs.append(Env(0)) or envs[0]], [0], Health())
    assert isinstance(group, InlineGroup)
    group.send(0, RESET)
    group.receive(1)
    group.close()
    assert envs[0].closed
    assert envs[0].threads == {threading.current_thread()}


def test_several_environments_have_one_thread_each_for_life():
    envs = {}

    def make(index):
        envs[index] = Env(index)
        return envs[index]

    makes = [functools.partial(make, i) for i in range(3)]
    group = make_group(makes, [0, 1, 2], Health())
    assert isinstance(group, ThreadGroup)
    for position in range(3):
        group.send(position, RESET)
    seen = 0
    while seen < 3:
        seen += len(group.receive(3))
    group.close()
    assert all(env.closed for env in envs.values())
    assert all(len(env.threads) == 1 for env in envs.values())
    assert len(set.union(*(env.threads for env in envs.values()))) == 3


def fail_in_step(env, action):
    if not action['reset'] and env.index == 0:
        raise ZeroDivisionError('the marble is lost')  # the line that users see


class FailsToClose(Env):
    def close(self):
        raise ZeroDivisionError('the lid is stuck')


FAILURES = {
    'step': (functools.partial(Env, hook=fail_in_step), 'the line that users see'),
    'make': (lambda index: 1 / 0, r'failed in make\(\)'),
    'close': (FailsToClose, r'failed in close\(\): .*the lid is stuck'),
}


@pytest.mark.parametrize('failure', FAILURES)
@pytest.mark.parametrize('envids', GROUPS.values(), ids=GROUPS)
def test_a_failing_environment_is_named_with_the_line_of_the_user(
    tmp_path, failure, envids
):
    make, message = FAILURES[failure]
    args = make_args(tmp_path)
    with FakeActor(args, rows=30), pytest.raises(EnvError, match=message) as error:
        run_worker(make, plan(*envids), args)
    assert 'Environment' in str(error.value)


class Wider(Env):
    def __init__(self, index):
        super().__init__(index)
        extra = {'extra': elements.Space(np.float32, (index + 1,))}
        self.obs_space = {**Env.obs_space, **extra}


class Incomplete(Env):
    obs_space = {'image': Env.obs_space['image']}


class Different(Env):
    def step(self, action):
        return {**super().step(action), 'image': np.zeros((5, 5, 3), np.uint8)}


@pytest.mark.parametrize('make', [Wider, Incomplete, Different])
def test_environments_that_do_not_fit_are_refused(tmp_path, make):
    args = make_args(tmp_path)
    with FakeActor(args, rows=30), pytest.raises(SpaceError):
        run_worker(make, plan(0, 1), args)


def test_one_environment_runs_unless_a_group_is_asked_for(tmp_path):
    for changes, envids in (({}, {1}), ({'envs_per_worker': 2}, {1, 2})):
        args = make_args(tmp_path, **changes)
        with FakeActor(args, rows=20) as actor:
            parallel_env(Env, 1, args)
        assert {row[1] for row in actor.rows} == envids


@pytest.mark.parametrize(
    'envid, is_eval',
    [(4, False), (-1, False), (3, True), (5, True), (FIRST_EVAL_ENV + 1, True)],
)
def test_environments_that_do_not_exist_are_refused(tmp_path, envid, is_eval):
    with pytest.raises(ConfigError, match=f'environment {envid}: with run.envs=4'):
        parallel_env(Env, envid, make_args(tmp_path), is_eval)


def test_groups_end_with_the_last_environment_of_their_kind(tmp_path):
    args = make_args(tmp_path, envs=4, eval_envs=1, envs_per_worker=3)
    with FakeActor(args, rows=20) as actor:
        parallel_env(Env, 3, args)
    assert {row[1] for row in actor.rows} == {3}


@pytest.mark.parametrize('envid', [4, FIRST_EVAL_ENV])
def test_evaluation_is_numbered_on_from_training_or_by_itself(tmp_path, envid):
    args = make_args(tmp_path, envs=4, eval_envs=1)
    with FakeActor(args, periods=1) as actor:
        parallel_env(Env, envid, args, is_eval=True)
    assert {row[1] for row in actor.rows} == {FIRST_EVAL_ENV}


SCRIPT = """
import pickle, sys
folder, args, values = pickle.loads(bytes.fromhex(sys.argv[1]))
sys.path.insert(0, folder)
import acting_parts, elements
from embodied.run.parallel.env.worker import run_worker
from embodied.run.parallel.settings import WorkerPlan

class Env(acting_parts.Env):
    def close(self):
        sys.stdout.write(f'closed {"jax" in sys.modules}\\n')

reason = run_worker(Env, WorkerPlan(*values), elements.Config(args))
print(f'returned {reason!r}', flush=True)
"""


def start_process(args, *values):
    folder = os.path.dirname(os.path.dirname(__file__))
    packed = pickle.dumps((folder, dict(args.flat), values)).hex()
    return subprocess.Popen(
        [sys.executable, '-c', SCRIPT, packed],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize('number', [None, signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize('envids', GROUPS.values(), ids=GROUPS)
def test_a_worker_closes_its_environments_and_ends_well(tmp_path, envids, number):
    args = make_args(tmp_path)
    with FakeActor(args) as actor, start_process(args, envids, False) as process:
        actor.wait_for(lambda: len(actor.rows) > 20)
        if number is None:
            actor.limit = 0
        else:
            process.send_signal(number)
        actor.wait_for(lambda: actor.left)
        output, errors = process.communicate(timeout=DEADLINE)
    closed, reason = ['closed False'] * len(envids), number.name if number else ''
    assert output.splitlines() == [*closed, f'returned {reason!r}']
    assert errors == ''
    assert process.returncode == 0


def test_all_workers_of_a_machine_are_started_and_awaited(tmp_path):
    args = make_args(tmp_path, envs=3, eval_envs=1, envs_per_worker=2)
    with FakeActor(args) as actor:
        starter = Worker(parallel_envs, Env, Env, args)
        actor.wait_for(
            lambda: {row[1] for row in actor.rows} == {0, 1, 2, FIRST_EVAL_ENV}
        )
        actor.limit = 0
        starter.join()
        actor.wait_for(lambda: len(actor.left) == 3)
    groups = {}
    for _, envid, _, worker, _ in actor.rows:
        groups.setdefault(worker, set()).add(envid)
    assert sorted(map(sorted, groups.values())) == [[0, 1], [2], [FIRST_EVAL_ENV]]


def test_an_error_of_one_worker_ends_all_of_them(tmp_path):
    args = make_args(tmp_path, envs=2, eval_envs=0, envs_per_worker=1)
    make = functools.partial(Env, hook=fail_in_step)
    with FakeActor(args), pytest.raises(RoleError, match='the marble is lost'):
        parallel_envs(make, make, args)
