"""Stop signals, sent to this very process."""

import os
import queue
import signal
import subprocess
import sys
import threading

import pytest

from embodied.processes import signals
from embodied.processes.signals import WATCHED, StopSignals, Terminated

INT, TERM, HUP = WATCHED


@pytest.fixture(autouse=True)
def handlers_are_as_before():
    # A shell that runs us in the background has SIGINT ignored, and libraries that
    # other tests use leave handlers behind.
    before = {
        INT: signal.default_int_handler,
        TERM: signal.SIG_DFL,
        HUP: signal.SIG_DFL,
    }
    inherited = {x: signal.signal(x, handler) for x, handler in before.items()}
    yield
    assert {x: signal.getsignal(x) for x in WATCHED} == before
    for number, handler in inherited.items():
        signal.signal(number, handler)


@pytest.fixture
def short(monkeypatch):
    """Windows in which signals count once, short enough to wait for their end."""
    monkeypatch.setattr(signals, 'REPEAT', 0.2)
    monkeypatch.setattr(signals, 'REPEAT_KEY', 0.1)


def pause():
    """Longer than the windows of `short`."""
    threading.Event().wait(0.25)


@pytest.mark.parametrize('number', WATCHED)
def test_the_first_signal_is_only_noted(number):
    with StopSignals() as stop:
        assert stop.received is None
        signal.raise_signal(number)
        assert stop.received == number.name


@pytest.mark.parametrize('first', [INT, TERM, HUP])
@pytest.mark.parametrize('second', [TERM, HUP])
def test_a_repeat_within_two_seconds_counts_once(first, second):
    """`timeout` sends two to the same process, a service manager one of each."""
    with StopSignals() as stop:
        signal.raise_signal(first)
        for _ in range(3):
            signal.raise_signal(second)
        assert stop.received == first.name


def test_a_key_that_bounces_counts_once():
    with StopSignals() as stop:
        signal.raise_signal(INT)
        signal.raise_signal(INT)
        assert stop.received == 'SIGINT'


@pytest.mark.parametrize('first', WATCHED)
@pytest.mark.parametrize('second', WATCHED)
def test_a_second_signal_later_ends_the_program_at_once(short, first, second):
    error = KeyboardInterrupt if second == INT else Terminated
    with pytest.raises(error) as info, StopSignals() as stop:  # noqa: PT012
        signal.raise_signal(first)
        pause()
        signal.raise_signal(second)
    assert stop.received == first.name
    if second != INT:
        assert (info.value.signal, info.value.code) == (second.name, 128 + second)


def test_half_a_second_is_enough_for_a_person(monkeypatch):
    monkeypatch.setattr(signals, 'REPEAT_KEY', 0.1)
    with StopSignals():
        signal.raise_signal(INT)
        pause()
        signal.raise_signal(TERM)  # within two seconds
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(INT)


def test_the_second_signal_does_what_it_did_before():
    with pytest.raises(KeyboardInterrupt), StopSignals() as stop:  # noqa: PT012
        signal.raise_signal(signal.SIGTERM)
        assert stop.received == 'SIGTERM'
        signal.raise_signal(signal.SIGINT)


def test_what_ends_at_once_is_not_interrupted_again(short):
    unwound = False
    with pytest.raises(Terminated), StopSignals():
        signal.raise_signal(TERM)
        pause()
        try:
            signal.raise_signal(TERM)
        finally:
            for number in WATCHED:
                signal.raise_signal(number)
            unwound = True
    assert unwound


def test_handlers_are_put_back_after_an_error():
    with pytest.raises(ValueError, match='broken'), StopSignals():
        raise ValueError('broken')


def test_ignored_signals_stay_ignored():
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with StopSignals() as stop:
            signal.raise_signal(signal.SIGINT)
            assert stop.received is None
            signal.raise_signal(signal.SIGTERM)
            assert stop.received == 'SIGTERM'
    finally:
        signal.signal(signal.SIGINT, previous)


def test_other_threads_install_nothing():
    found = []

    def enter():
        with StopSignals():
            found.extend(signal.getsignal(x) for x in WATCHED)

    before = [signal.getsignal(x) for x in WATCHED]
    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert found == before


def test_a_waiting_thread_is_notified_once():
    names = queue.SimpleQueue()
    with StopSignals(notify=names.put):
        signal.raise_signal(signal.SIGTERM)
        assert names.get(timeout=0) == 'SIGTERM'
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert names.empty()


def test_a_signal_that_reaches_another_thread_wakes_the_main_one():
    """A system may hand a signal to any thread; only the main one runs handlers."""
    received: queue.SimpleQueue[str] = queue.SimpleQueue()
    may_send = threading.Event()

    def take_the_signal():
        may_send.wait()
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

    thread = threading.Thread(target=take_the_signal)
    thread.start()
    with StopSignals(notify=received.put):
        may_send.set()
        assert received.get(timeout=30) == 'SIGTERM'
    thread.join()


def test_nothing_of_the_context_is_left_behind():
    before = threading.active_count()
    handler = signal.getsignal(signal.SIGURG)
    streams = sys.stdout, sys.stderr
    with StopSignals(), StopSignals():
        pass
    assert threading.active_count() == before
    assert signal.getsignal(signal.SIGURG) is handler
    assert signal.set_wakeup_fd(-1) == -1
    assert (sys.stdout, sys.stderr) == streams


# One context inside of another


def test_a_context_inside_of_another_takes_its_signals():
    names = queue.SimpleQueue()
    with StopSignals() as outer:
        with StopSignals(notify=names.put) as inner:
            signal.raise_signal(TERM)
            assert inner.received == outer.received == names.get(timeout=0) == 'SIGTERM'
        signal.raise_signal(TERM)  # a repeat, although the loop has ended
        with StopSignals(notify=names.put) as late:
            assert late.received == names.get(timeout=0) == 'SIGTERM'


def test_a_context_that_is_left_at_once_takes_no_more_signals():
    def leave(name):
        raise ValueError(name)

    with StopSignals() as outer:
        signal.raise_signal(TERM)
        with pytest.raises(ValueError, match='SIGTERM'), StopSignals(notify=leave):
            raise AssertionError('not entered')
        with StopSignals() as inner:
            assert inner.received == outer.received == 'SIGTERM'


def test_a_second_signal_in_an_inner_context_ends_the_program(short):
    with pytest.raises(Terminated), StopSignals(), StopSignals():  # noqa: PT012
        signal.raise_signal(TERM)
        pause()
        signal.raise_signal(TERM)


# Processes

STUCK = """
import ctypes, signal
from embodied.processes import signals
signals.REPEAT, signals.AT_ONCE = 0.2, 0.5
with signals.StopSignals():
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    print('stuck', flush=True)
    ctypes.CDLL(None).pause()
"""


def test_a_program_that_cannot_be_interrupted_ends_by_the_second_signal():
    command = [sys.executable, '-c', STUCK]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == 'stuck\n'
        process.send_signal(TERM)
        threading.Event().wait(0.4)
        process.send_signal(TERM)
        assert process.wait(30) == 128 + TERM


SAVING = """
import os, queue, sys
from embodied.processes.signals import StopSignals
if os.isatty(0):
    os.close(os.open(os.ttyname(0), os.O_RDWR))  # which controls this session then
names = queue.SimpleQueue()
with StopSignals(names.put) as stop:
    os.write(int(sys.argv[1]), b'ready')
    names.get()
    for _ in range(3):
        print('the last view', flush=True)
        print('a warning', file=sys.stderr)
    print('in a buffer')
    open(sys.argv[2], 'w').write(f'saved after {stop.received}')
"""


def start_in_terminal(path):
    """The script above in a terminal of its own; its process and that terminal."""
    ready, theirs = os.pipe()
    terminal, slave = os.openpty()
    process = subprocess.Popen(
        [sys.executable, '-c', SAVING, str(theirs), str(path)],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        pass_fds=[theirs],
        start_new_session=True,
    )
    os.close(slave)
    os.close(theirs)
    assert os.read(ready, 5) == b'ready'
    os.close(ready)
    return process, terminal


def test_a_closed_terminal_does_not_keep_a_program_from_saving(tmp_path):
    process, terminal = start_in_terminal(tmp_path / 'save')
    os.close(terminal)
    assert process.wait(30) == 0
    assert (tmp_path / 'save').read_text() == 'saved after SIGHUP'


def test_a_pipe_without_a_reader_does_not_keep_a_program_from_saving(tmp_path):
    ready, theirs = os.pipe()
    process = subprocess.Popen(
        [sys.executable, '-c', SAVING, str(theirs), str(tmp_path / 'save')],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        pass_fds=[theirs],
    )
    os.close(theirs)
    assert os.read(ready, 5) == b'ready'
    os.close(ready)
    process.stdout.close()
    process.stderr.close()
    process.send_signal(TERM)
    assert process.wait(30) == 0
    assert (tmp_path / 'save').read_text() == 'saved after SIGTERM'
