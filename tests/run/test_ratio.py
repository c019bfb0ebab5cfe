"""The train ratio against its formula in whole numbers."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embodied.run.shared.ratio import RatioHistory, TrainRatio

BATCH_STEPS = 16 * 64


def run(ratio, steps, stride=1):
    for n in range(stride, steps + 1, stride):
        ratio.advance(n)
    return ratio.earned


@pytest.mark.parametrize(
    ('ratio', 'batch_steps', 'minimum', 'steps', 'expected'),
    [
        (32, 1024, 1040, 1040, 0),
        (32, 1024, 1040, 1071, 0),
        (32, 1024, 1040, 1072, 1),
        (32, 1024, 1040, 1040 + 3200, 100),
        (512, 1024, 0, 1001, 500),
        (0.5, 1024, 0, 4096, 2),
        (0.1, 1, 0, 30, 3),  # exactly: 0.1 * 30 is below 3 in binary fractions
        (0.3, 3, 0, 10, 1),
        (1e-05, 1, 0, 100_000, 1),
        (0, 1024, 0, 10**6, 0),
    ],
)
def test_updates_are_the_floor_of_the_formula(
    ratio, batch_steps, minimum, steps, expected
):
    counted = TrainRatio(ratio, batch_steps, minimum)
    counted.advance(steps)
    assert counted.earned == expected


@given(
    ratio=st.sampled_from([0.5, 1, 8, 32, 33.3, 512]),
    batch=st.integers(1, 40),
    minimum=st.integers(0, 100),
    strides=st.lists(st.integers(0, 50), min_size=1, max_size=20),
    restart=st.integers(0, 19),
)
def test_neither_the_size_of_advances_nor_restarts_matter(
    ratio, batch, minimum, strides, restart
):
    stepwise, steps = TrainRatio(ratio, batch, minimum), 0
    for index, stride in enumerate(strides):
        steps += stride
        stepwise.advance(steps)
        if index == restart:
            data = stepwise.save()
            stepwise = TrainRatio(ratio, batch, minimum)
            stepwise.load(data)
    once = TrainRatio(ratio, batch, minimum)
    once.advance(steps)
    assert stepwise.earned == once.earned
    whole = ratio * 10
    assert once.earned == int(max(0, steps - minimum) * whole) // (10 * batch)


def test_a_negative_ratio_earns_one_update_per_advance_once_replay_can_serve():
    assert run(TrainRatio(-1, BATCH_STEPS, minimum=100), steps=160, stride=16) == 4


@pytest.mark.parametrize(
    ('before', 'after', 'expected'),
    [
        ((32, 64), (64, 64), 50 + 100),
        ((32, 64), (32, 128), 50 + 25),
        ((32, 64), (32, 64), 50 + 50),
        ((32, 64), (0, 64), 50),
        ((0, 64), (32, 64), 50),
    ],
)
def test_a_changed_ratio_holds_for_the_steps_to_come(before, after, expected):
    first = TrainRatio(*before, minimum=100)
    first.advance(200)
    second = TrainRatio(*after, minimum=100)
    second.load(first.save())
    assert second.earned == first.earned
    second.advance(300)
    assert second.earned == expected


def test_a_run_that_stopped_before_the_minimum_still_waits_for_it():
    first = TrainRatio(32, 32, minimum=100)
    first.advance(50)
    second = TrainRatio(64, 32, minimum=120)
    second.load(first.save())
    second.advance(120)
    assert second.earned == 0
    second.advance(121)
    assert second.earned == 2


MINIMUM = 100
RATIOS = st.sampled_from([Fraction(1, 3), Fraction(1, 2), Fraction(2), Fraction(32)])


@given(parts=st.lists(st.tuples(RATIOS, st.integers(0, 300)), min_size=1, max_size=8))
def test_a_history_adds_up_what_each_ratio_has_earned(parts):
    """Whatever the number of resumes, with or without steps between them."""
    history, steps, earned = RatioHistory(), 0, Fraction(0)
    for ratio, more in parts:
        history = history.resume(ratio, MINIMUM, steps, trained=0)
        history = RatioHistory.load(history.save())
        earned += max(0, steps + more - max(steps, MINIMUM)) * ratio
        steps += more
    last = history.last
    assert last.ratio == parts[-1][0]
    assert last.earned + max(0, steps - last.start) * last.ratio == earned


def test_where_no_ratio_held_what_was_trained_is_what_was_earned():
    history = RatioHistory().resume(None, MINIMUM, 0, 0)
    history = history.resume(Fraction(1, 2), MINIMUM, 500, trained=77)
    assert history.last == (500, 77, Fraction(1, 2))
    history = history.resume(None, MINIMUM, 600, trained=130)
    assert history.last == (600, 77 + 50, None)
    assert history.resume(None, MINIMUM, 900, trained=400) == history


def test_steps_that_were_lost_are_taken_off_the_ratio_that_they_had():
    first = RatioHistory().resume(Fraction(1), MINIMUM, 0, 0)
    second = first.resume(Fraction(2), MINIMUM, 500, 400)
    assert second.last == (500, 400, 2)
    assert second.resume(Fraction(2), MINIMUM, 450, 400).last == (450, 350, 2)
    assert second.resume(Fraction(1), MINIMUM, 450, 400) == first
