"""Supervision of roles: which of them are started again, and when."""

import os
import select
import signal
import subprocess
import sys
import threading

import asked_roles
import pytest
import supervised_roles as roles
from asked_roles import Settings

from embodied.core.errors import ConfigError, RoleError
from embodied.logging import read_records
from embodied.run.parallel.supervision import hang, supervised_run
from embodied.run.parallel.supervision.role import Role
from embodied.run.parallel.supervision.run_records import RunRecords
from embodied.run.parallel.supervision.status import Status
from embodied.run.parallel.supervision.supervisor import Supervisor

pytestmark = pytest.mark.usefixtures('nothing_is_left')

SECONDS = 30  # until something that should happen counts as missing


@pytest.fixture
def make_supervisor(tmp_path):
    def make(**options):
        settings = Settings(tmp_path, **options)
        return Supervisor(settings, RunRecords(tmp_path, epoch=1))

    return make


def told(folder, event='role', key='state'):
    """What the events say about the only role."""
    return [
        x.get(key) for x in read_records(folder / 'events.jsonl') if x['event'] == event
    ]


def interrupt_when(door, count=1):
    """Sends us a signal when `count` roles are there; the thread that does."""

    def work():
        for _ in range(count):
            door.await_pid()
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


# Restarts


def test_a_killed_role_is_started_again(make_supervisor, tmp_path):
    with make_supervisor(max_restarts=1) as supervisor:
        supervisor.start('role', roles.die_until, tmp_path, 2, True)
        supervisor.wait()
    assert roles.count_lives(tmp_path) == 2
    assert told(tmp_path) == ['starting', 'running', 'restarting', 'starting']
    assert told(tmp_path, key='reason')[2] == 'killed by signal 9 (Killed)'
    status = Status.read(tmp_path)
    assert status.state == 'finished'
    assert status.record['roles']['role']['restarts'] == 1


def test_restarts_with_progress_in_between_are_not_limited(make_supervisor, tmp_path):
    with make_supervisor(max_restarts=1) as supervisor:
        supervisor.start('role', roles.die_until, tmp_path, 4, True)
        supervisor.wait()
    assert roles.count_lives(tmp_path) == 4


def test_restarts_without_progress_are_limited(make_supervisor, tmp_path):
    message = r'2 times \(run.max_restarts\)'
    with (
        pytest.raises(RoleError, match=message) as info,
        make_supervisor(max_restarts=2) as c,
    ):
        c.start('role', roles.die_until, tmp_path, 9, False)
        c.wait()
    assert 'The role (process' in str(info.value)
    assert roles.count_lives(tmp_path) == 3
    assert told(tmp_path)[-1] == 'failed'
    status = Status.read(tmp_path)
    assert status.state == 'failed'
    assert 'run.max_restarts' in status.record['error']


@pytest.mark.parametrize(
    ('error', 'raised', 'lives'),
    [
        (ValueError('burnt'), RoleError, 2),  # the same again, right after the start
        (ConfigError('burnt'), ConfigError, 1),  # only the user can correct it
        (OSError(28, 'burnt'), RoleError, 1),  # no space left
        (ConnectionRefusedError('burnt'), RoleError, 4),  # may go away
    ],
)
def test_errors_that_a_restart_does_not_help_against_end_the_run(
    make_supervisor, tmp_path, error, raised, lives
):
    with (
        pytest.raises(raised, match='burnt') as info,
        make_supervisor(max_restarts=3) as supervisor,
    ):
        supervisor.start('cook', roles.fail_always, tmp_path, error)
        supervisor.wait()
    assert roles.count_lives(tmp_path) == lives
    if raised is RoleError:
        assert 'The cook failed' in str(info.value)
        assert str(tmp_path / 'logs' / 'cook.log') in str(info.value)
        assert '  about to fail' in str(info.value)


def test_a_role_that_leaves_while_the_run_goes_on_is_started_again(
    make_supervisor, door, tmp_path
):
    with make_supervisor(max_restarts=1) as supervisor:
        supervisor.start('lead', asked_roles.stay, door.path, lead=True)
        supervisor.start('other', roles.fail_then_stay, tmp_path, door.path)
        thread = interrupt_when(door, 2)
        supervisor.wait()
    thread.join()
    assert roles.count_lives(tmp_path) == 2


def test_roles_that_have_ended_start_again_with_the_lead_that_had_asked_them_to(
    make_supervisor, door, tmp_path
):
    os.mkfifo(tmp_path / 'ended')
    args = tmp_path, door.path, tmp_path / 'ended'
    with make_supervisor(max_restarts=1) as supervisor:
        supervisor.start('lead', roles.lead_that_dies_once, *args, lead=True)
        supervisor.start('other', roles.leave_and_tell, tmp_path / 'ended')
        supervisor.wait()
    events = read_records(tmp_path / 'events.jsonl')
    starts = [x['role'] for x in events if x.get('state') == 'starting']
    assert starts == ['lead', 'other', 'lead', 'other']


# Stopped and hung


def test_a_stopped_role_goes_on(make_supervisor, tmp_path, monkeypatch):
    monkeypatch.setattr(supervised_run, 'CONTINUES', 0.2)
    with make_supervisor() as supervisor:
        supervisor.start('role', roles.stop_once, tmp_path)
        supervisor.wait()
    assert roles.count_lives(tmp_path) == 1
    assert told(tmp_path, 'stopped', 'role') == ['role']
    assert told(tmp_path, 'continued', 'role') == ['role']


@pytest.mark.parametrize(
    'hang',
    [roles.hang_once, pytest.param(roles.hang_partly_once, marks=pytest.mark.long)],
)
def test_a_hung_role_is_started_again(make_supervisor, tmp_path, hang):
    with make_supervisor(max_restarts=1, hang_timeout=3.0) as supervisor:
        supervisor.start('role', hang, tmp_path)
        supervisor.wait()
    assert roles.count_lives(tmp_path) == 2
    assert any('hung' in str(reason) for reason in told(tmp_path, key='reason'))
    assert 'in hang_' in (tmp_path / 'logs' / 'role.log').read_text()


@pytest.mark.long
def test_a_role_that_compiles_waits_or_computes_is_not_hung(make_supervisor, tmp_path):
    with make_supervisor(hang_timeout=1.0) as supervisor:
        supervisor.start('role', roles.take_long, 3.0)
        supervisor.wait()
    assert told(tmp_path) == ['starting', 'running']


def run_launcher(tmp_path, door, kind):
    script = roles.__file__
    command = [sys.executable, script, str(tmp_path), str(door.path), kind]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def test_a_suspended_launcher_gives_all_roles_more_time(door, tmp_path):
    launcher = run_launcher(tmp_path, door, 'slow')
    role = door.await_pid()
    launcher.send_signal(signal.SIGINT)
    door.await_pid()  # It was asked, and begins to save.
    for pid in (role, launcher.pid):
        os.kill(pid, signal.SIGSTOP)
    threading.Event().wait(4.0)  # longer than the grace
    for pid in (launcher.pid, role):
        os.kill(pid, signal.SIGCONT)
    _, errors = launcher.communicate(timeout=SECONDS)
    assert launcher.returncode == 0, errors
    assert (tmp_path / 'ended').exists()
    (seconds,) = told(tmp_path, 'suspended', 'seconds')
    assert seconds >= 1


def test_a_launcher_without_descriptors_says_what_to_do(door, tmp_path):
    launcher = run_launcher(tmp_path, door, 'full')
    _, errors = launcher.communicate(timeout=SECONDS)
    assert launcher.returncode != 0
    assert 'The role failed: OSError: [Errno 24] Too many open files' in errors
    assert '`ulimit -n`' in errors


# Ends


@pytest.mark.parametrize('unsaved', [False, True])
def test_a_role_that_compiles_does_not_hold_up_the_end(
    make_supervisor, door, tmp_path, unsaved, capfd
):
    saved = tmp_path / 'saved'
    with make_supervisor(grace=4.0) as supervisor:
        supervisor.start('lead', roles.compile_for_ever, door.path, unsaved, lead=True)
        supervisor.start(
            'writer', asked_roles.stay_and_save, door.path, saved, writes=True
        )
        thread = interrupt_when(door, 2)
        supervisor.wait()
    thread.join()
    assert saved.exists()
    assert ('goes on from its last save' in capfd.readouterr().out) == unsaved


def test_no_role_counts_as_running_after_a_failure(make_supervisor, door, tmp_path):
    with pytest.raises(RoleError, match='burnt'), make_supervisor() as supervisor:
        supervisor.start('deaf', asked_roles.be_deaf, door.path)
        supervisor.start('cook', roles.fail_always, tmp_path, ValueError('burnt'))
        supervisor.wait()
    status = Status.read(tmp_path)
    assert status.state == 'failed'
    states = {name: role['state'] for name, role in status.record['roles'].items()}
    assert states == {'deaf': 'done', 'cook': 'failed'}
    assert status.record['roles']['deaf']['pid'] is None


def test_an_error_at_the_end_lets_the_others_save(make_supervisor, door, tmp_path):
    saved = tmp_path / 'ended'
    with (
        pytest.raises(RoleError, match='could not close'),
        make_supervisor() as supervisor,
    ):
        supervisor.start('env', roles.fail_when_asked, door.path)
        supervisor.start('writer', roles.end_slowly, door.path, saved, writes=True)
        thread = interrupt_when(door, 2)
        supervisor.wait()
    thread.join()
    assert saved.exists()


def test_no_program_outlives_a_killed_launcher(door, tmp_path):
    """Neither in the group of a role, nor in a session of its own, while the role is
    stopped."""
    launcher = run_launcher(tmp_path, door, 'program')
    programs = [door.await_pid() for _ in range(2)]
    ended = [os.pidfd_open(pid) for pid in programs]
    launcher.kill()
    launcher.communicate()
    for fd in ended:
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        assert poll.poll(1000 * SECONDS)
        os.close(fd)
    assert Status.read(tmp_path).state == 'dead'


class Waiting:
    """A role that no machine has room for yet."""

    name, pid, node = 'agent', 0, ''

    def cpu_seconds(self):
        return 0.0


def test_waiting_for_a_machine_is_no_hang(monkeypatch):
    role = Role('agent', lambda number: Waiting(), max_restarts=1, hang_timeout=0.01)
    role.start()
    monkeypatch.setattr(hang, 'ROLE_SILENT', 0.0)
    threading.Event().wait(0.05)
    assert [role.look() for _ in range(3)] == [None] * 3
