"""Averages, speeds and shares of time."""

import time

import numpy as np
import pytest

from embodied.run.shared.meters import Allowance, Averages, Share, Speed


def test_scalars_are_averaged_by_name_and_start_anew():
    averages = Averages()
    averages.add({'loss': 1.0, 'rare': np.float32(5)})
    averages.add({'loss': np.array(3.0)})
    assert averages.result() == {'loss': 2.0, 'rare': 5.0}
    assert averages.result() == {}


def test_of_pictures_and_texts_the_last_is_kept():
    averages = Averages()
    for value in (1, 2):
        averages.add({'image': np.full((2, 2, 3), value), 'text': str(value)})
    result = averages.result()
    assert result['text'] == '2'
    np.testing.assert_array_equal(result['image'], np.full((2, 2, 3), 2))


def test_speed_is_events_per_second_since_the_last_call(monkeypatch):
    now = [10.0]
    monkeypatch.setattr(time, 'perf_counter', lambda: now[0])
    speed = Speed()
    now[0] = 12.0
    assert speed(100) == 50.0
    now[0] = 12.5
    assert speed(110) == 20.0
    assert speed(110) == 0.0


def test_share_counts_the_time_inside_also_while_it_lasts(monkeypatch):
    now = [10.0]
    monkeypatch.setattr(time, 'perf_counter', lambda: now[0])
    share = Share()
    with share:
        now[0] = 13.0
    now[0] = 14.0
    assert share() == 0.75
    with share:
        now[0] = 18.0
        assert share() == 1.0
        now[0] = 19.0
    now[0] = 20.0
    assert share() == 0.5
    now[0] = 21.0
    assert share() == 0.0


def test_an_allowance_is_used_up_for_nine_times_as_long(monkeypatch):
    now = [10.0]
    monkeypatch.setattr(time, 'perf_counter', lambda: now[0])
    allowance = Allowance(every=5.0)
    assert not allowance.used_up
    with allowance:
        now[0] = 12.0
    now[0] = 29.9
    assert allowance.used_up
    now[0] = 30.1
    assert not allowance.used_up
    assert allowance() == 2.0 / 20.1


def test_two_times_in_a_row_put_the_next_one_off_for_both(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, 'perf_counter', lambda: now[0])
    allowance = Allowance(every=5.0)
    for end in (1.0, 2.0):
        with allowance:
            now[0] = end
    now[0] = 18.9
    assert allowance.used_up
    now[0] = 19.1
    assert not allowance.used_up


@pytest.mark.parametrize(('every', 'free'), [(-1.0, 0), (5.0, 1)])
def test_an_allowance_of_always_and_the_first_time_do_not_count(
    monkeypatch, every, free
):
    now = [0.0]
    monkeypatch.setattr(time, 'perf_counter', lambda: now[0])
    allowance = Allowance(every, free)
    with allowance:
        now[0] = 60.0
    assert not allowance.used_up
    assert allowance() == (0.0 if free else 1.0)
