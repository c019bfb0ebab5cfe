"""Clocks against a hand-turned monotonic time."""

import time

import pytest

from embodied import GlobalClock, LocalClock


@pytest.fixture
def now(monkeypatch):
    """A list with the current time, for tests that turn it by hand."""
    current = [100.0]
    monkeypatch.setattr(time, 'monotonic', lambda: current[0])
    return current


def answers(clock, now, times):
    result = []
    for value in times:
        now[0] = value
        result.append(clock())
    return result


@pytest.mark.parametrize('kind', [LocalClock, GlobalClock])
@pytest.mark.parametrize(
    ('every', 'first', 'times', 'expected'),
    [
        (10, False, [100, 105, 110, 111, 119.9, 120], [0, 0, 1, 0, 0, 1]),
        (10, True, [100, 105, 110, 111], [1, 0, 1, 0]),
        (10, False, [100, 150, 151, 160], [0, 1, 0, 1]),
        (0, False, [100, 200, 300], [0, 0, 0]),
        (0, True, [100, 200, 300], [0, 0, 0]),
        (-1, False, [100, 100, 100], [1, 1, 1]),
    ],
)
def test_clock_is_due_once_per_period(kind, every, first, times, expected, now):
    assert answers(kind(every, first), now, times) == [bool(x) for x in expected]


def test_what_was_skipped_stays_due(now):
    clock = LocalClock(10)
    assert not clock(step=0)
    now[0] = 112
    assert not clock(step=1, skip=True)
    now[0] = 113
    assert clock(step=1, skip=False)
    now[0] = 122
    assert not clock()
    now[0] = 123
    assert clock()


def test_a_clock_that_is_always_due_can_be_skipped():
    clock = LocalClock(-1)
    assert not clock(skip=True)
    assert clock()
