"""Commands that signals end: what is saved then, and what the folder says of it."""

import contextlib
import os
import signal
import subprocess
import sys
import threading

import psutil
import pytest
from watching import FolderWatch

from dreamerv3 import config as config_lib
from dreamerv3.main import loop_args
from embodied.core.checkpoint import load_part, load_part_and_step
from embodied.logging import read_records
from embodied.processes.signals import REPEAT
from embodied.run.parallel.context import RoleContext
from embodied.run.parallel.saves.manifest import Manifest
from embodied.run.parallel.supervision.status import Status
from embodied.transport import free_port

pytestmark = pytest.mark.usefixtures('nothing_is_left')

SECONDS = 90  # until something that should happen counts as missing
FLAGS = ['--configs', 'tiny', '--random_agent', 'True', '--task', 'dummy_mixed']
FLAGS += ['--run.envs', '2', '--run.eval_envs', '0', '--run.log_every', '0.2']
FLAGS += ['--run.save_every', '1e6']


class Command:
    """`dreamer SCRIPT` in a session of its own."""

    def __init__(self, logdir, script, *flags, prefix=(), **options):
        self.logdir = logdir
        logdir.mkdir(exist_ok=True)
        self._watch = FolderWatch(logdir)
        command = [*prefix, sys.executable, '-m', 'dreamerv3', script, *FLAGS]
        command += ['--logdir', str(logdir), *flags]
        self.process = subprocess.Popen(command, start_new_session=True, **options)
        self._watch.follow(self.process.pid)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self._watch.close()
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def await_steps(self, count=200):
        """Blocks until metrics tell of so many environment steps."""
        path = self.logdir / 'metrics.jsonl'
        played = lambda: any(x['step'] >= count for x in read_records(path))
        ended = lambda: self.process.poll() is not None
        self._watch.await_that(lambda: played() or ended(), SECONDS)
        assert not ended()

    def await_file(self, name):
        self._watch.await_that((self.logdir / name).exists, SECONDS)

    def send_as_timeout_does(self, number=signal.SIGTERM):
        """To the process, and to its group, as late as on a busy machine."""
        self.process.send_signal(number)
        threading.Event().wait(0.1)
        with contextlib.suppress(ProcessLookupError):  # It was quick.
            os.killpg(self.process.pid, number)

    def wait(self):
        return self.process.wait(SECONDS)

    def ends(self):
        """What the loop and the command say, in the last two events about the end."""
        events = read_records(self.logdir / 'events.jsonl')
        ends = [x for x in events if x['event'] in ('ended', 'stop')]
        return [(x['event'], x.get('state'), x.get('reason')) for x in ends[-2:]]


def both(state, reason):
    return [('ended', state, reason), ('stop', state, reason)]


@pytest.mark.parametrize('script', ['train', 'train_eval', 'parallel'])
def test_two_signals_of_timeout_leave_a_last_save(tmp_path, script):
    flags = ['--run.eval_envs', '1'] if script == 'train_eval' else []
    with Command(tmp_path, script, *flags) as run:
        run.await_steps()
        run.send_as_timeout_does()
        assert run.wait() == 0
    assert run.ends() == both('stopped', 'SIGTERM')
    assert load_part_and_step(tmp_path, 'agent')[1] >= 200
    if script == 'parallel':
        status = Status.read(tmp_path)
        assert (status.state, status.record['reason']) == ('stopped', 'SIGTERM')
        manifest = Manifest.read(tmp_path / 'ckpt')
        assert manifest.ended and manifest.state == 'stopped'


@pytest.mark.long
def test_timeout_itself_ends_a_run_with_a_last_save(tmp_path):
    command = ['timeout', '8', sys.executable, '-m', 'dreamerv3', 'train', *FLAGS]
    command += ['--logdir', str(tmp_path)]
    assert subprocess.run(command, timeout=SECONDS, check=False).returncode == 124
    (stop,) = (
        x for x in read_records(tmp_path / 'events.jsonl') if x['event'] == 'stop'
    )
    assert (stop['state'], stop['reason']) == ('stopped', 'SIGTERM')


# Starts a command in a session that is controlled by its terminal.
TAKE_CONTROL = """
import os, sys
os.close(os.open(os.ttyname(0), os.O_RDWR))
os.execv(sys.argv[1], sys.argv[1:])
"""
CONTROLLED = [sys.executable, '-c', TAKE_CONTROL]


@pytest.fixture
def terminal():
    """A terminal: what programs in it are given, and the process that shows it."""
    shown, programs = os.openpty()
    with subprocess.Popen(['cat'], stdin=shown, stdout=subprocess.DEVNULL) as screen:
        os.close(shown)
        yield programs, screen
        screen.kill()


@pytest.mark.parametrize('script', ['train', 'parallel'])
def test_a_closed_terminal_ends_a_run_with_a_last_save(tmp_path, script, terminal):
    programs, screen = terminal
    streams = dict.fromkeys(('stdin', 'stdout', 'stderr'), programs)
    outputs = ['--logger.outputs', 'terminal', 'jsonl']
    with Command(tmp_path, script, *outputs, prefix=CONTROLLED, **streams) as run:
        os.close(programs)
        run.await_steps()
        screen.kill()
        assert run.wait() == 0
    assert run.ends() == both('stopped', 'SIGHUP')
    assert load_part_and_step(tmp_path, 'agent')[1] >= 200


def test_a_reader_that_goes_away_does_not_end_a_run(tmp_path):
    with Command(tmp_path, 'parallel', stdout=subprocess.PIPE) as run:
        run.await_steps(100)
        run.process.stdout.close()
        run.await_steps(2000)
        run.process.send_signal(signal.SIGTERM)
        assert run.wait() == 0
    assert run.ends() == both('stopped', 'SIGTERM')
    roles = Status.read(tmp_path).record['roles']
    assert [role['restarts'] for role in roles.values()] == [0] * len(roles)


def test_a_signal_to_all_processes_leaves_a_last_save(tmp_path):
    """As service managers and schedulers send it."""
    with Command(tmp_path, 'train', '--run.env_processes', 'True') as run:
        run.await_steps()
        children = psutil.Process(run.process.pid).children(recursive=True)
        assert len(children) >= 2
        for process in (*children, run.process):
            process.send_signal(signal.SIGTERM)
        assert run.wait() == 0
    assert run.ends() == both('stopped', 'SIGTERM')


@pytest.mark.parametrize('script', ['train', 'parallel'])
def test_a_run_that_reaches_its_steps_is_finished(tmp_path, script):
    for _ in range(2):  # The second finds nothing left to do.
        with Command(tmp_path, script, '--run.steps', '300') as run:
            assert run.wait() == 0
        assert run.ends()[-1] == ('stop', 'finished', 'run.steps')
    if script == 'parallel':
        assert Status.read(tmp_path).state == 'finished'
        assert Manifest.read(tmp_path / 'ckpt').state == 'finished'


def test_a_run_whose_launcher_was_killed_at_its_end_is_finished(tmp_path):
    with Command(tmp_path, 'parallel', '--run.steps', '300') as run:
        assert run.wait() == 0
    path = tmp_path / 'status.json'
    path.write_text(path.read_text().replace('"finished"', '"running"'))
    assert Status.read(tmp_path).state == 'dead'
    with Command(tmp_path, 'parallel', '--run.steps', '300') as run:
        assert run.wait() == 0
    status = Status.read(tmp_path)
    assert (status.state, status.record['reason']) == ('finished', 'run.steps')


@pytest.mark.parametrize('script', ['train', 'parallel'])
def test_a_run_that_uses_up_its_time_is_stopped(tmp_path, script):
    with Command(tmp_path, script, '--run.duration', '1') as run:
        assert run.wait() == 0
    assert run.ends() == both('stopped', 'run.duration')
    if script == 'parallel':
        status = Status.read(tmp_path)
        assert (status.state, status.record['reason']) == ('stopped', 'run.duration')
        assert Manifest.read(tmp_path / 'ckpt').reason == 'run.duration'


def test_an_evaluation_that_a_signal_ends_is_stopped(tmp_path):
    with Command(tmp_path, 'train', '--run.steps', '300') as run:
        assert run.wait() == 0
    flags = ['--run.eval_eps', '1000000', '--run.from_checkpoint', str(tmp_path)]
    with Command(tmp_path / 'eval', 'eval_only', *flags) as run:
        run.await_file('scores.jsonl')
        run.await_steps(0)
        run.send_as_timeout_does()
        assert run.wait() == 0
    assert run.ends()[-1] == ('stop', 'stopped', 'SIGTERM')


@pytest.mark.parametrize('role', ['replay', 'logger'])
def test_a_job_that_timeout_ends_leaves_its_save(tmp_path, role):
    names = ('actor', 'replay', 'logger')
    addresses = [f'--run.{name}_addr=localhost:{free_port()}' for name in names]
    flags = [*FLAGS, '--logdir', str(tmp_path), *addresses]
    context = RoleContext.of(loop_args(config_lib.resolve(flags)[0]))
    addr = getattr(context.settings, f'{role}_addr')
    with (
        Command(tmp_path, f'parallel_{role}', *addresses) as job,
        context.make_client(addr, 'test') as client,
    ):
        client.connect(SECONDS)
        job.send_as_timeout_does()
        assert job.wait() == 128 + signal.SIGTERM
    assert load_part(tmp_path / 'ckpt' / role, role)


@pytest.mark.long
def test_a_second_signal_later_kills_a_run_that_says_so(tmp_path):
    with Command(tmp_path, 'parallel') as run:
        run.await_steps()
        children = psutil.Process(run.process.pid).children(recursive=True)
        replay = Status.read(tmp_path).record['roles']['replay']['pid']
        os.kill(replay, signal.SIGSTOP)  # so that the end takes its time
        run.process.send_signal(signal.SIGTERM)
        threading.Event().wait(REPEAT + 0.5)
        run.process.send_signal(signal.SIGTERM)
        assert run.wait() == 128 + signal.SIGTERM
        assert psutil.wait_procs(children, SECONDS)[1] == []
    status = Status.read(tmp_path)
    assert (status.state, status.record['reason']) == ('killed', 'SIGTERM')
    assert run.ends()[-1] == ('stop', 'killed', 'SIGTERM')
