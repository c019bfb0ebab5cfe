"""Ends of a supervisor: which signals count, and what its status says of them."""

import os
import signal
import threading

import asked_roles
import end_roles as roles
import pytest
from asked_roles import Settings

from embodied.logging import read_records
from embodied.processes import signals
from embodied.processes.signals import Terminated
from embodied.run.parallel.supervision.process import ENDED, ChildProcess, RoleSpec
from embodied.run.parallel.supervision.run_records import RunRecords
from embodied.run.parallel.supervision.status import Status
from embodied.run.parallel.supervision.supervisor import Supervisor

pytestmark = pytest.mark.usefixtures('nothing_is_left')

SECONDS = 30  # until something that should happen counts as missing
STOP_SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


@pytest.fixture
def make_supervisor(tmp_path):
    return lambda: Supervisor(Settings(tmp_path), RunRecords(tmp_path, epoch=1))


@pytest.fixture(autouse=True)
def handled():
    """A shell that runs us in the background may have signals ignored."""
    before = {x: signal.signal(x, signal.SIG_DFL) for x in STOP_SIGNALS}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def send_when(door, numbers, pause=0.0):
    """Sends us signals when a role is there; the thread that does."""

    def work():
        door.await_pid()
        for number in numbers:
            os.kill(os.getpid(), number)
            threading.Event().wait(pause)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def outcome(folder):
    record = Status.read(folder).record
    return record['state'], record['reason'], record['error']


@pytest.mark.parametrize('number', STOP_SIGNALS)
def test_a_run_that_a_signal_ends_is_stopped(make_supervisor, door, tmp_path, number):
    with make_supervisor() as supervisor:
        supervisor.start(
            'lead', roles.save_slowly, door.path, tmp_path / 'save', lead=True
        )
        thread = send_when(door, [number])
        supervisor.wait()
    thread.join()
    assert outcome(tmp_path) == ('stopped', number.name, '')
    # The lead knows why, too.
    assert (tmp_path / 'save').read_text() == f'saved after {number.name}'


@pytest.mark.parametrize(
    'numbers',
    [
        [signal.SIGTERM, signal.SIGTERM],
        [signal.SIGHUP, signal.SIGTERM, signal.SIGHUP],
        [signal.SIGINT, signal.SIGINT],
        [signal.SIGINT, signal.SIGTERM],
    ],
)
def test_signals_in_quick_succession_do_not_skip_the_last_save(
    make_supervisor, door, tmp_path, numbers
):
    with make_supervisor() as supervisor:
        supervisor.start(
            'lead', roles.save_slowly, door.path, tmp_path / 'save', lead=True
        )
        thread = send_when(door, numbers, pause=0.05)
        supervisor.wait()
    thread.join()
    assert (tmp_path / 'save').exists()
    assert outcome(tmp_path) == ('stopped', numbers[0].name, '')
    events = read_records(tmp_path / 'events.jsonl')
    assert [x['event'] for x in events].count('stopping') == 1


@pytest.mark.parametrize('number', STOP_SIGNALS)
def test_a_second_signal_later_kills_a_run_that_says_so(
    make_supervisor, door, tmp_path, number, monkeypatch
):
    monkeypatch.setattr(signals, 'REPEAT', 0.3)
    error = KeyboardInterrupt if number == signal.SIGINT else Terminated
    with pytest.raises(error), make_supervisor() as supervisor:
        supervisor.start('lead', asked_roles.be_deaf, door.path, lead=True)
        send_when(door, [number, number], pause=0.6)
        supervisor.wait()
    assert outcome(tmp_path) == ('killed', number.name, '')
    roles = Status.read(tmp_path).record['roles']
    assert roles['lead']['pid'] is None


@pytest.mark.parametrize(
    ('reason', 'state'), [('run.steps', 'finished'), ('run.duration', 'stopped')]
)
def test_limits_of_a_run_are_told_apart(make_supervisor, tmp_path, reason, state):
    with make_supervisor() as supervisor:
        supervisor.start('lead', roles.reach, reason, lead=True)
        supervisor.wait()
    assert supervisor.outcome == (state, reason)
    assert outcome(tmp_path) == (state, reason, '')


def test_a_signal_after_the_last_step_does_not_change_how_a_run_ended(
    make_supervisor, door, tmp_path
):
    args = door.path, tmp_path / 'save', 'run.steps'
    with make_supervisor() as supervisor:
        supervisor.start('lead', roles.save_slowly, *args, lead=True)
        thread = send_when(door, [signal.SIGTERM])
        supervisor.wait()
    thread.join()
    assert (tmp_path / 'save').exists()
    assert outcome(tmp_path) == ('finished', 'run.steps', '')


def test_a_child_that_is_terminated_twice_dies_of_the_signal(door, tmp_path):
    ended = threading.Event()
    notify = lambda event: event.what == ENDED and ended.set()
    spec = RoleSpec.of(roles.save_for_ever, (door.path,))
    child = ChildProcess('replay', spec, tmp_path / 'log', os.urandom(8).hex(), notify)
    for _ in range(2):
        os.kill(door.await_pid(), signal.SIGTERM)
    assert ended.wait(SECONDS)
    assert child.collect().code == -signal.SIGTERM


def test_a_pipe_that_another_thread_closes_is_no_error(tmp_path):
    """A thread is in the middle of a message when the process is collected."""
    errors = []
    hook, threading.excepthook = threading.excepthook, errors.append
    ended, sending, go_on = threading.Event(), threading.Event(), threading.Event()
    notify = lambda event: event.what == ENDED and ended.set()
    spec = RoleSpec.of(asked_roles.leave, ())
    child = ChildProcess('env0', spec, tmp_path / 'log', os.urandom(8).hex(), notify)
    assert ended.wait(SECONDS)
    send = child._pipe._send_bytes

    def send_late(data):
        sending.set()
        go_on.wait()
        send(data)

    child._pipe._send_bytes = send_late
    child.ask()
    assert sending.wait(SECONDS)
    collecting = threading.Thread(target=child.collect)
    collecting.start()
    collecting.join(0.5)
    go_on.set()
    collecting.join(SECONDS)
    for thread in threading.enumerate():
        if thread.name.endswith('-env0'):
            thread.join(SECONDS)
    threading.excepthook = hook
    assert errors == []
