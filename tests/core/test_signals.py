"""Stop signals, sent to this very process."""

import queue
import signal
import threading

import pytest

from embodied.core.signals import WATCHED, StopSignals


@pytest.fixture(autouse=True)
def handlers_are_as_before():
    # A shell that runs us in the background has SIGINT ignored.
    inherited = signal.signal(signal.SIGINT, signal.default_int_handler)
    before = [signal.getsignal(x) for x in WATCHED]
    yield
    assert [signal.getsignal(x) for x in WATCHED] == before
    signal.signal(signal.SIGINT, inherited)


@pytest.mark.parametrize('number', WATCHED)
def test_the_first_signal_is_only_noted(number):
    with StopSignals() as stop:
        assert stop.received is None
        signal.raise_signal(number)
        assert stop.received == number.name


def test_the_second_signal_does_what_it_did_before():
    with pytest.raises(KeyboardInterrupt), StopSignals() as stop:  # noqa: PT012
        signal.raise_signal(signal.SIGTERM)
        assert stop.received == 'SIGTERM'
        signal.raise_signal(signal.SIGINT)


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


def test_somebody_who_waits_is_notified_once():
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
    with StopSignals(), StopSignals():
        pass
    assert threading.active_count() == before
    assert signal.getsignal(signal.SIGURG) is handler
    assert signal.set_wakeup_fd(-1) == -1
