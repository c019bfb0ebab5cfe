"""Clocks against a hand-turned monotonic time."""

import time

import numpy as np
import pytest

from embodied import GlobalClock, LocalClock
from embodied.clock import Agreement


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


# Replicas

UPDATES = 12


class Fleet:
    """Replicas whose votes are exchanged as their updates would do it."""

    def __init__(self, replicas, every, first=False):
        self.agreements = [Agreement(i) for i in range(replicas)]
        own = every if isinstance(every, list) else [every] * replicas
        pairs = zip(own, self.agreements, strict=True)
        self.clocks = [GlobalClock(x, first, agreement) for x, agreement in pairs]
        self._pending = None

    def update(self, skips=()):
        """One update of all; what their clocks answer after it."""
        before, votes = self._pending, [x.votes.copy() for x in self.agreements]
        self._pending = np.min(votes, 0)
        if before is not None:
            for agreement in self.agreements:
                agreement.learn(before)
        answers = [clock(skip=i in skips) for i, clock in enumerate(self.clocks)]
        assert len(set(answers)) == 1, 'replicas must not get out of step'
        return answers[0]


def test_replica_0_decides_for_all_and_each_period_counts_once(now):
    fleet, due = Fleet(3, every=10), []
    for second in range(50):
        now[0] = 100 + second
        if fleet.update():
            due.append(second)
    # Two updates after it was due at 10, then 10 seconds after that.
    assert due == [12, 24, 36, 48]


def test_the_clocks_of_other_replicas_do_not_matter(now):
    fleet = Fleet(2, every=[10, 1])
    fleet.update()
    now[0] += 5
    assert [fleet.update() for _ in range(UPDATES)] == [False] * UPDATES


@pytest.mark.parametrize('replica', [0, 1, 2])
def test_any_replica_that_skips_vetoes_and_what_was_due_stays_due(replica, now):
    fleet = Fleet(3, every=10)
    fleet.update()
    now[0] += 10
    assert not any(fleet.update(skips=[replica]) for _ in range(UPDATES))
    assert [fleet.update() for _ in range(4)] == [False, False, True, False]


@pytest.mark.parametrize(
    ('every', 'first', 'expected'),
    [(0, True, [0, 0, 0, 0]), (-1, False, [0, 0, 1, 1]), (10, True, [0, 0, 1, 0])],
)
def test_replicas_have_clocks_for_never_always_and_at_once(every, first, expected, now):
    fleet = Fleet(2, every, first)
    assert [fleet.update() for _ in range(4)] == [bool(x) for x in expected]


def test_all_replicas_know_of_a_stop_after_the_same_update(now):
    fleet = Fleet(3, every=0)
    fleet.update()
    fleet.agreements[1].stop()
    over = []
    for _ in range(2):
        fleet.update()
        over.append([x.over for x in fleet.agreements])
    assert over == [[False] * 3, [True] * 3]
