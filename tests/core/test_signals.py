"""Stop signals, sent to this very process."""

import queue
import signal
import threading

import pytest

from embodied.core.signals import WATCHED, StopSignals


@pytest.fixture(autouse=True)
def handlers_are_as_before():
    before = [signal.getsignal(x) for x in WATCHED]
    yield
    assert [signal.getsignal(x) for x in WATCHED] == before


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
