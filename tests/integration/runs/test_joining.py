"""Environment jobs join a run that goes on, and those that do not fit do it no harm."""

import contextlib
import functools
import signal
import subprocess
import sys

import foreign
import pytest
from watching import FolderWatch

from embodied import transport
from embodied.core.errors import RoleError
from embodied.logging import read_records
from embodied.run import parallel
from embodied.run.parallel import run_id

pytestmark = pytest.mark.usefixtures('nothing_is_left')

SECONDS = 90  # until a process that should end counts as hanging
COMMAND = [sys.executable, '-m', 'dreamerv3']
RUN = ['--configs', 'tiny', '--random_agent', 'True', '--task', 'dummy_mixed']
RUN += ['--logger.outputs', 'jsonl', '--run.envs', '2', '--run.eval_envs', '1']
RUN += ['--run.eval_every', '100', '--run.log_every', '0.2']
bind = functools.partial


def records(path):
    return read_records(path) if path.exists() else []


class Run:
    """`dreamer parallel` in a folder, with a known address."""

    def __init__(self, logdir, watch):
        self.logdir, self._watch = logdir, watch
        self.address = f'localhost:{transport.free_port()}'
        self.flags = [*RUN, '--run.actor_addr', self.address]
        self.process = subprocess.Popen(
            [*COMMAND, 'parallel', *self.flags, '--logdir', str(logdir)]
        )
        watch.follow(self.process.pid)

    def await_players(self, *players):
        """Blocks until these (env, eval) have ended an episode from now on."""
        seen = len(records(self.logdir / 'scores.jsonl'))

        def played():
            assert self.process.poll() is None
            new = records(self.logdir / 'scores.jsonl')[seen:]
            return {(x['env'], x['eval']) for x in new} >= set(players)

        self._watch.await_that(played, SECONDS)

    def join(self, command, *flags, logdir=None):
        """Runs a job that is meant to fail; what it prints to stderr."""
        folder = ['--logdir', str(logdir or self.logdir)]
        argv = [*COMMAND, command, *self.flags, *folder, '--run.envs', '5', *flags]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=SECONDS)
        assert done.returncode == 2, done.stderr
        return done.stderr


@pytest.fixture
def run(tmp_path):
    logdir = tmp_path / 'run'
    logdir.mkdir()
    with contextlib.closing(FolderWatch(logdir)) as watch:
        run = Run(logdir, watch)
        try:
            yield run
        finally:
            run.process.kill()
            run.process.wait()


@pytest.mark.long
def test_jobs_that_do_not_fit_are_refused_and_the_run_goes_on(run, tmp_path):
    run.await_players((0, False))
    one = '--run.first_env', '4'
    other = tmp_path / 'other'
    ids = run_id.read(run.logdir), run_id.create(other)
    refusals = [
        (
            run.join('parallel_env', *one, '--env.dummy.size', '32'),
            'image: server has uint8 of shape (64, 64, 3), client has uint8 of shape '
            '(32, 32, 3)',
        ),
        (
            run.join('parallel_envs', '--replica', '2', '--env.dummy.size', '32'),
            'image: server has uint8 of shape (64, 64, 3), client has uint8 of shape '
            '(32, 32, 3)',
        ),
        (
            run.join('parallel_env', *one, '--task', 'dummy_disc', logdir=tmp_path),
            'task: server has dummy_mixed, client has dummy_disc',
        ),
        (
            run.join('parallel_env', *one, logdir=other),
            f'run: server has {ids[0]}, client has {ids[1]}',
        ),
    ]
    for printed, words in refusals:
        assert printed.count(words) == 1, printed
        assert printed.startswith('dreamer: '), printed
    run.await_players((0, False), (1, False))
    # A worker that fits joins beside the evaluation environment, number 2 of the run.
    argv = [*COMMAND, 'parallel_env', *run.flags, '--logdir', str(run.logdir)]
    joiner = subprocess.Popen([*argv, '--run.envs', '3', '--run.first_env', '2'])
    run.await_players((2, False))
    run.process.send_signal(signal.SIGTERM)
    assert run.process.wait(SECONDS) == 0
    assert joiner.wait(SECONDS) == 0
    roles = [x for x in records(run.logdir / 'events.jsonl') if x['event'] == 'role']
    assert {x['restarts'] for x in roles} == {0}
    log = (run.logdir / 'logs' / 'agent.log').read_text()
    assert log.count('env4: refused, it differs in') == 1  # the first time
    evaluated = [x for x in records(run.logdir / 'scores.jsonl') if x['eval']]
    assert not {x['env'] for x in evaluated} & set(range(5))


class FailingAgent(foreign.Agent):
    """Its policy or its training fails, once: then there is a file that tells so."""

    def __init__(self, path, method):
        super().__init__()
        self.path, self.method, self.calls = path, method, 0

    def policy(self, carry, obs, mode='train'):
        # Evaluation has its two episodes behind it and waits for the next ones.
        self.calls += mode == 'train'
        if self.method == 'policy' and self.calls == 60:
            self.fail()
        return super().policy(carry, obs, mode)

    def train(self, carry, batch):
        if self.method == 'train' and self.updates == 20:
            self.fail()
        return super().train(carry, batch)

    def fail(self):
        if not self.path.exists():
            self.path.touch()
            raise ValueError('the agent is out of its mind')


def run_failing(logdir, method, **changes):
    parallel.combined(
        bind(FailingAgent, logdir / 'failed', method),
        foreign.Replay,
        foreign.Replay,
        foreign.Env,
        foreign.Env,
        foreign.make_stream,
        bind(foreign.make_logger, logdir),
        foreign.make_args(logdir, **changes),
    )


@pytest.mark.parametrize('method', ['policy', 'train'])
def test_an_error_of_the_agent_is_counted_for_it_alone(tmp_path, method):
    run_failing(tmp_path, method)
    roles = [x for x in records(tmp_path / 'events.jsonl') if x['event'] == 'role']
    restarted = [x for x in roles if x['state'] == 'restarting']
    assert [x['role'] for x in restarted] == ['agent']
    assert restarted[0]['reason'] == 'ValueError: the agent is out of its mind'
    workers = [x for x in roles if x['role'].startswith(('env', 'eval'))]
    assert workers and {x['restarts'] for x in workers} == {0}
    for log in (tmp_path / 'logs').glob('e*.log'):
        assert 'out of its mind' not in log.read_text()


def test_a_policy_error_that_ends_the_run_is_told_of_the_agent(tmp_path):
    with pytest.raises(RoleError) as info:
        run_failing(tmp_path, 'policy', max_restarts=0)
    words = 'The agent failed: ValueError: the agent is out of its mind'
    assert str(info.value).startswith(words)
