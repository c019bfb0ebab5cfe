"""Roles in processes: how they start, how they end and what is left of them."""

import os
import signal
import subprocess
import sys
import threading

import asked_roles as roles
import pytest
from asked_roles import Settings
from waiting import await_end

from embodied.core.errors import ConfigError, RoleError
from embodied.processes.signals import REPEAT_KEY
from embodied.run.parallel.supervision.supervisor import Supervisor
from embodied.transport import AddressInUse

pytestmark = pytest.mark.usefixtures('nothing_is_left')


@pytest.fixture
def make_supervisor(tmp_path):
    return lambda **options: Supervisor(Settings(tmp_path, **options))


def interrupt_when(door, count, number=signal.SIGINT):
    """Sends us a signal when `count` roles are there; the thread that does."""

    def work():
        for _ in range(count):
            door.await_pid()
        os.kill(os.getpid(), number)

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_waiting_ends_with_the_last_role(make_supervisor, door):
    with make_supervisor() as supervisor:
        for name in ('a', 'b', 'c'):
            supervisor.start(name, roles.leave, door.path)
        supervisor.wait()
    assert len({door.await_pid() for _ in range(3)}) == 3


def test_large_arguments_arrive(make_supervisor, tmp_path):
    with make_supervisor() as supervisor:
        for name in ('a', 'b'):
            supervisor.start(name, roles.write, tmp_path / name, bytes(10**6))
        supervisor.wait()
    assert (tmp_path / 'b').stat().st_size == 10**6


@pytest.mark.parametrize(
    ('kind', 'raised', 'message'),
    [
        (ConfigError, ConfigError, '^nothing to eat$'),
        (AddressInUse, AddressInUse, '^nothing to eat$'),
        (
            ValueError,
            RoleError,
            '^The cook failed: ValueError: nothing to eat\n\nTrace',
        ),
    ],
)
def test_an_error_of_a_role_is_raised_by_its_launcher(
    make_supervisor, kind, raised, message
):
    with pytest.raises(raised, match=message), make_supervisor() as supervisor:
        supervisor.start('cook', roles.fail, kind, 'nothing to eat')
        supervisor.wait()


def test_a_killed_role_is_reported_with_the_end_of_its_log(make_supervisor, tmp_path):
    with pytest.raises(RoleError) as info, make_supervisor() as supervisor:
        supervisor.start('cook', roles.die)
        supervisor.wait()
    assert 'The cook' in str(info.value)
    assert 'signal 9 (Killed)' in str(info.value)
    assert str(tmp_path / 'logs' / 'cook.log') in str(info.value)
    assert str(info.value).endswith('  a last word')


def test_an_error_ends_all_roles_and_lets_writers_write(
    make_supervisor, door, tmp_path
):
    def fail_when_there(supervisor):
        for _ in range(2):
            door.await_pid()
        supervisor.start('cook', roles.fail, ValueError, 'burnt')

    with pytest.raises(RoleError, match='burnt'), make_supervisor() as supervisor:
        saved = tmp_path / 'saved'
        supervisor.start('writer', roles.stay_and_save, door.path, saved, writes=True)
        supervisor.start('deaf', roles.be_deaf, door.path)
        fail_when_there(supervisor)
        supervisor.wait()
    assert saved.read_text() == 'saved'


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM])
def test_a_signal_asks_all_roles_to_end(make_supervisor, door, number):
    with make_supervisor() as supervisor:
        supervisor.start('a', roles.stay, door.path)
        supervisor.start('b', roles.hang, door.path)
        thread = interrupt_when(door, 2, number)
        supervisor.wait()
    thread.join()


@pytest.mark.parametrize('taken', ['masked', 'handled'])
def test_roles_hear_the_request_to_end_when_a_library_took_the_signal(
    make_supervisor, door, taken
):
    with make_supervisor() as supervisor:
        supervisor.start('role', roles.stay_without_signals, door.path, taken)
        thread = interrupt_when(door, 1)
        supervisor.wait()
    thread.join()


def test_a_role_may_be_asked_to_end_before_it_has_begun(make_supervisor, door):
    with make_supervisor() as supervisor:
        supervisor.start('role', roles.stay, door.path)
        signal.raise_signal(signal.SIGINT)
        supervisor.wait()


def test_with_a_lead_only_the_lead_is_asked_first(make_supervisor, door, tmp_path):
    saved = tmp_path / 'saved'
    with make_supervisor() as supervisor:
        supervisor.start('lead', roles.stay_and_save, door.path, saved, lead=True)
        supervisor.start('other', roles.stay, door.path)
        thread = interrupt_when(door, 2)
        supervisor.wait()
    thread.join()
    assert saved.exists()


def test_the_lead_is_told_who_will_not_come_back(make_supervisor, door, tmp_path):
    path, names = tmp_path / 'lost', ('writer', 'cook')
    with pytest.raises(RoleError, match='burnt'), make_supervisor() as supervisor:
        told = roles.tell_who_is_gone, door.path, path, names
        supervisor.start('lead', *told, lead=True)
        supervisor.start('writer', roles.stay, door.path, writes=True)
        for _ in range(2):
            door.await_pid()
        supervisor.start('cook', roles.fail, ValueError, 'burnt')
        supervisor.wait()
    assert path.read_text() == 'cook'


def test_roles_that_stay_longer_than_the_grace_are_killed_by_name(
    make_supervisor, door, tmp_path
):
    with (
        pytest.raises(RoleError, match=r'^deaf did not end within run.grace=2.0 s'),
        make_supervisor(grace=2.0) as supervisor,
    ):
        supervisor.start('quick', roles.stay, door.path)
        supervisor.start('deaf', roles.be_deaf, door.path)
        thread = interrupt_when(door, 2)
        supervisor.wait()
    thread.join()
    assert 'in be_deaf' in (tmp_path / 'logs' / 'deaf.log').read_text()


def test_a_second_interrupt_ends_at_once(make_supervisor, door):
    with pytest.raises(KeyboardInterrupt), make_supervisor() as supervisor:  # noqa: PT012
        supervisor.start('deaf', roles.be_deaf, door.path)
        interrupt_when(door, 1).join()
        threading.Event().wait(REPEAT_KEY + 0.2)  # or it would be the same request
        signal.raise_signal(signal.SIGINT)


def test_programs_that_a_role_started_end_with_it(make_supervisor, door):
    with make_supervisor() as supervisor:
        supervisor.start('parent', roles.leave_program_behind, door.path)
        supervisor.wait()
    await_end(door.await_pid())


def test_children_die_with_a_launcher_that_is_killed(door, tmp_path):
    command = [sys.executable, roles.__file__, str(tmp_path), str(door.path)]
    launcher = subprocess.Popen(command)
    child = door.await_pid()
    launcher.kill()
    launcher.wait()
    await_end(child)


def test_children_die_with_a_launcher_thread_that_is_killed(door, tmp_path):
    """Without the signal of the kernel, which would come when the thread ends."""
    code = (
        'import pathlib, sys, threading, asked_roles\n'
        'paths = map(pathlib.Path, sys.argv[1:])\n'
        'thread = threading.Thread(target=asked_roles.launch, args=tuple(paths))\n'
        'thread.start()\n'
        'thread.join()\n'  # A program that is about to end starts no more threads.
    )
    command = [sys.executable, '-c', code, str(tmp_path), str(door.path)]
    folder = os.path.dirname(roles.__file__)
    launcher = subprocess.Popen(command, env={**os.environ, 'PYTHONPATH': folder})
    child = door.await_pid()
    launcher.kill()
    launcher.wait()
    await_end(child)
