"""Limiters: the ratio they keep, what they admit, and that no side waits for ever."""

import random
import threading
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embodied import limiters
from embodied.core.errors import ConfigError


def may_insert(limiter, count):
    return limiter.await_insert(count, timeout=0)


def may_sample(limiter, count=1):
    samples = limiter.samples
    admitted = limiter.sample(count, timeout=0)
    limiter.correct(samples=samples)
    return admitted


def drive(limiter, steps, insert_sizes, sample_sizes, rng, check):
    """Random requests from both sides; returns how often neither could go."""
    stuck = 0
    for _ in range(steps):
        inserting, sampling = rng.choice(insert_sizes), rng.choice(sample_sizes)
        sides = ['insert', 'sample']
        rng.shuffle(sides)
        moved = False
        for side in sides:
            size = inserting if side == 'insert' else sampling
            if getattr(limiter, side)(size, timeout=0):
                moved = True
                check(size if side == 'sample' else None, inserting)
                break
        stuck += not moved
    return stuck


@pytest.mark.parametrize('train_ratio', [0.5, 8, 32, 512])
@pytest.mark.parametrize('insert, sample', [(1, 16), (7, 13), (16, 16), (31, 5)])
def test_samples_stay_within_the_band_at_every_moment(train_ratio, insert, sample):
    limiter = limiters.RateLimiter.for_training(train_ratio, 16, 64, 65, streams=16)
    ratio, minimum = Fraction(train_ratio) / 64, 16 * 65
    worst = max(4 * 16, insert * ratio, sample)

    def check(*_):
        wanted = max(0, limiter.inserts - minimum) * ratio
        assert abs(limiter.samples - wanted) <= worst

    stuck = drive(limiter, 20_000, [insert], [sample], random.Random(0), check)
    assert stuck == 0
    wanted = float((limiter.inserts - minimum) * ratio)
    if wanted > 100 * 64:
        assert limiter.samples == pytest.approx(wanted, rel=0.02)


@settings(max_examples=1000, deadline=None)
@given(
    ratio=st.one_of(st.just(-1), st.floats(1e-3, 1e4)),
    minimum=st.integers(1, 10_000),
    tolerance=st.floats(0, 1000),
    ahead=st.integers(0, 200),
    sizes=st.tuples(*[st.lists(st.integers(1, 200), min_size=1, max_size=3)] * 2),
    seed=st.integers(0, 2**32),
)
def test_one_side_may_always_go(ratio, minimum, tolerance, ahead, sizes, seed):
    limiter = limiters.RateLimiter(ratio, minimum, tolerance, ahead)
    rng = random.Random(seed)
    assert drive(limiter, 60, *sizes, rng, lambda *_: None) == 0
    limiter.correct(inserts=rng.randrange(10**6), samples=rng.randrange(10**6))
    assert drive(limiter, 10, *sizes, rng, lambda *_: None) == 0
    limiter.count_from(rng.randrange(10**6), Fraction(rng.randrange(10**6), 7))
    assert drive(limiter, 10, *sizes, rng, lambda *_: None) == 0
    limiter.end_at(limiter.inserts + 1000, max(sizes[1]))
    assert drive(limiter, 60, sizes[0], [max(sizes[1])], rng, lambda *_: None) == 0


def test_sampling_waits_for_the_minimum_and_inserting_does_not():
    limiter = limiters.RateLimiter(1.0, minimum=10, tolerance=2)
    assert limiter.insert(9) and not may_sample(limiter)
    assert limiter.insert(1) and may_sample(limiter)


def test_a_request_is_admitted_whole_at_the_ratio_and_refused_beyond_the_band():
    limiter = limiters.RateLimiter(0.5, minimum=4, tolerance=3)
    limiter.insert(4)
    assert may_insert(limiter, 100) and may_sample(limiter, 100)  # balance 0
    limiter.insert(4)  # balance 2
    assert may_insert(limiter, 2) and not may_insert(limiter, 3)
    limiter.sample(5)  # balance -3
    assert not may_sample(limiter, 1) and may_insert(limiter, 1000)


def test_unlimited_ratio_keeps_the_minimum_only():
    limiter = limiters.MinSize(5)
    assert not may_sample(limiter)
    limiter.insert(5)
    assert limiter.sample(10**6, timeout=0) and limiter.insert(10**6, timeout=0)


def test_waiting_ends_with_the_other_side():
    limiter = limiters.RateLimiter(1.0, minimum=1, tolerance=1)
    results = []
    thread = threading.Thread(target=lambda: results.append(limiter.sample(1)))
    thread.start()
    assert limiter.insert(1)
    thread.join(10)
    assert results == [True]


def test_stopping_wakes_every_waiter():
    limiter = limiters.RateLimiter(1.0, minimum=1, tolerance=1)
    results = []
    threads = [
        threading.Thread(target=lambda: results.append(limiter.sample(1)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    limiter.stop()
    for thread in threads:
        thread.join(10)
    assert results == [False] * 4


def test_what_is_handed_out_ahead_is_taken_off_the_tolerance_of_inserts():
    limiter = limiters.RateLimiter(0.5, minimum=4, tolerance=8, ahead=6)
    limiter.correct(inserts=6)  # balance 1
    assert may_insert(limiter, 2) and not may_insert(limiter, 3)
    assert may_sample(limiter, 9)  # that side has the whole tolerance


@pytest.mark.parametrize(
    'ratio, inserts, served',
    [(0.5, 25, 10), (0.5, 27, 10), (0.5, 4, 0), (-1, 25, 0)],
    ids=['exactly', 'rounded down', 'below the minimum', 'unlimited'],
)
def test_after_the_last_insert_sampling_ends_at_the_ratio(ratio, inserts, served):
    limiter = limiters.RateLimiter(ratio, minimum=5, tolerance=8)
    limiter.correct(inserts=inserts)
    results = []
    drain = lambda: results.extend(iter(lambda: limiter.sample(2), False))
    limiter.end_inserts()
    thread = threading.Thread(target=drain, daemon=True)
    thread.start()
    thread.join(10)
    assert not thread.is_alive() and 2 * len(results) == limiter.samples == served


def test_the_end_of_inserts_wakes_a_waiting_sample():
    limiter = limiters.RateLimiter(1.0, minimum=5)
    results = []
    thread = threading.Thread(target=lambda: results.append(limiter.sample(1)))
    thread.start()
    limiter.end_inserts()
    thread.join(10)
    assert results == [False]


def test_an_insert_may_be_counted_after_it_was_committed():
    limiter = limiters.RateLimiter(1.0, minimum=2, tolerance=3)
    assert limiter.await_insert(2) and limiter.inserts == 0
    assert not may_sample(limiter, 1)
    limiter.correct(inserts=2)
    assert may_sample(limiter, 1)
    assert limiter.await_insert(3)  # balance 0 before it
    limiter.correct(inserts=5)
    assert not limiter.await_insert(1, timeout=0)


def test_a_timeout_counts_nothing():
    limiter = limiters.RateLimiter(1.0, minimum=3)
    assert not limiter.sample(1, timeout=0.01)
    assert limiter.samples == 0


def test_corrected_counters_survive_save_and_load():
    limiter = limiters.RateLimiter(2.0, minimum=1, tolerance=8)
    limiter.insert(10)
    limiter.sample(4)
    limiter.correct(inserts=9, samples=2)
    other = limiters.RateLimiter(2.0, minimum=1, tolerance=8)
    other.load(limiter.save())
    assert (other.inserts, other.samples, other.balance()) == (9, 2, 14.0)


def test_minimum_of_training_grows_until_one_stream_holds_a_sequence():
    limiter = limiters.RateLimiter.for_training(32, 16, 64, 65, streams=100)
    limiter.insert(100 * 64)
    assert not may_sample(limiter, 16)
    limiter.insert(1)
    assert may_sample(limiter, 16)


@pytest.mark.parametrize(
    'settings, reason',
    [
        ({'ratio': 0.0}, 'wait for it without end'),
        ({'ratio': -2.0}, 'wait for it without end'),
        ({'ratio': float('nan')}, 'wait for it without end'),
        ({'ratio': 1.0, 'minimum': 0}, 'empty replay'),
        ({'ratio': 1.0, 'tolerance': -1}, 'empty band'),
        ({'ratio': 1.0, 'tolerance': float('inf')}, 'empty band'),
    ],
)
def test_settings_that_would_deadlock_are_refused(settings, reason):
    with pytest.raises(ConfigError, match=reason):
        limiters.RateLimiter(**settings)


def test_another_ratio_holds_from_where_it_is_counted():
    limiter = limiters.RateLimiter(2.5, minimum=10, tolerance=4)
    limiter.correct(inserts=100, samples=31)
    limiter.count_from(start=100, earned=Fraction(100, 3))
    assert limiter.balance() == pytest.approx(100 / 3 - 31, abs=1e-12)
    limiter.correct(inserts=106)
    assert limiter.balance() == pytest.approx(100 / 3 + 15 - 31, abs=1e-12)
    assert limiter.sample(17, timeout=0)  # The balance is 1/3.
    assert may_sample(limiter, 4) and not may_insert(limiter, 10)
    limiter.correct(samples=31 + 18)  # -2/3
    assert not may_sample(limiter, 4) and may_sample(limiter, 3)


@settings(max_examples=300, deadline=None)
@given(
    ratio=st.fractions(Fraction(1, 20), 20, max_denominator=50),
    batch=st.integers(1, 20),
    rows=st.integers(1, 20),
    steps=st.integers(1, 400),
    seed=st.integers(0, 2**32),
)
def test_at_the_end_exactly_what_was_earned_is_sampled(ratio, batch, rows, steps, seed):
    limiter = limiters.RateLimiter(float(ratio), minimum=7, tolerance=4 * batch)
    limiter.end_at(steps, batch)
    rng = random.Random(seed)
    while limiter.inserts < steps:
        assert drive(limiter, 1, [rows], [batch], rng, lambda *_: None) == 0
    limiter.end_inserts()
    while limiter.sample(batch):
        pass
    earned = max(0, limiter.inserts - 7) * ratio
    assert limiter.samples == earned // batch * batch
