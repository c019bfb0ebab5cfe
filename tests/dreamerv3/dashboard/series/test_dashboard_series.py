"""Decimated series and curves, against values worked out by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dreamerv3.dashboard.series import buckets
from dreamerv3.dashboard.series.chart_data import ChartRequest
from dreamerv3.dashboard.series.clock import Clock
from dreamerv3.dashboard.series.curves import (
    Span,
    combine,
    common_grid,
    complete,
    resample,
)
from dreamerv3.dashboard.series.series_cache import RunSeries


def points(values, steps=None):
    steps = range(len(values)) if steps is None else steps
    pairs = enumerate(zip(steps, values, strict=True))
    rows = [(step, 10.0 * i, value) for i, (step, value) in pairs]
    return buckets.single(np.array(rows, np.float64))


@settings(max_examples=30, deadline=None)
@given(
    count=st.integers(1, 5000),
    cuts=st.lists(st.integers(0, 5000), max_size=6),
    seed=st.integers(0, 100),
)
def test_a_series_is_the_same_in_whatever_parts_it_comes(count, cuts, seed):
    values = np.random.default_rng(seed).normal(size=count)
    whole = buckets.EMPTY.append(points(values))
    series, every = buckets.EMPTY, points(values)
    for part in np.split(every, sorted(min(cut, count) for cut in cuts)):
        series = series.append(part)
    assert series.stride == whole.stride
    assert len(whole.buckets) <= buckets.MOST_BUCKETS
    for key in buckets.BUCKET.names:
        np.testing.assert_allclose(series.buckets[key], whole.buckets[key], atol=1e-9)
    assert whole.buckets['count'].sum() == count
    weights = whole.buckets['count'] / count
    np.testing.assert_allclose(weights @ whole.buckets['mean'], values.mean())
    assert whole.buckets['low'].min() == values.min()
    assert whole.buckets['high'].max() == values.max()


def test_a_full_series_doubles_its_stride():
    series = buckets.EMPTY.append(points([1.0, 3.0, 5.0, 7.0, 2.0]), limit=3)
    assert series.stride == 2
    assert series.buckets['mean'].tolist() == [2.0, 6.0, 2.0]
    assert series.buckets['low'].tolist() == [1.0, 5.0, 2.0]
    assert series.buckets['high'].tolist() == [3.0, 7.0, 2.0]
    assert series.buckets['step'].tolist() == [0.5, 2.5, 4.0]
    assert series.buckets['count'].tolist() == [2, 2, 1]


def test_steps_that_were_played_again_replace_those_of_before():
    series = points([1.0, 2.0, 3.0, 4.0, 5.0], steps=[0, 10, 20, 12, 22])
    run = RunSeries({'a': series}, Clock(), start=0.0, share=1.0)
    curve = run.over('a', 'step')
    assert curve['step'].tolist() == [0, 10, 12, 22]
    assert curve['mean'].tolist() == [1.0, 2.0, 4.0, 5.0]
    assert run.over('a', 'time')['time'].tolist() == [0, 10, 20, 30, 40]


def test_the_clock_counts_training_and_not_the_pauses_between_sessions():
    clock = Clock()
    # Lines at 100 and 200; a pause of 900; at 1150 the run has trained 50 more.
    clock.learn(np.array([100.0, 200.0]), np.array([10.0, 110.0]))
    clock.learn(np.array([1150.0, 1250.0]), np.array([160.0, 260.0]))
    cases = {
        80.0: 0,  # before training
        95.0: 5,
        150.0: 60,
        200.0: 110,
        600.0: 110,  # in the pause
        1100.0: 110,  # the second session begins
        1120.0: 130,
        1250.0: 260,
        1300.0: 310,  # newer than the last line
    }
    found = clock.seconds(np.array(list(cases)), start=0.0)
    assert found.tolist() == list(cases.values())


def test_a_run_that_does_not_count_its_seconds_has_those_since_its_start():
    found = Clock().seconds(np.array([90.0, 100.0, 130.0]), start=100.0)
    assert found.tolist() == [0, 0, 30]


def test_training_that_was_lost_in_a_crash_is_left_out_over_time():
    series = points([1.0, 2.0, 3.0, 4.0], steps=[0, 10, 5, 15])
    clock = Clock()
    clock.learn(np.array([0.0, 10.0]), np.array([0.0, 10.0]))
    clock.learn(np.array([100.0, 110.0]), np.array([5.0, 15.0]))
    series['time'] = [0, 10, 100, 110]
    curve = RunSeries({'a': series}, clock, 0.0, 1.0).over('a', 'time')
    assert curve['time'].tolist() == [0, 5, 15]
    assert curve['mean'].tolist() == [1, 3, 4]


def test_a_band_spans_the_runs_that_are_there():
    first, second = points([0.0, 2.0], steps=[0, 2]), points([4.0, 4.0], steps=[1, 4])
    grid = common_grid([first, second], 'step', Span(), points=10)
    assert grid.tolist() == [0, 1, 2, 4]
    curves = [resample(curve, 'step', grid) for curve in (first, second)]
    assert complete(curves) == 3  # the first ends at 2
    both = combine(curves)
    assert both[0].tolist() == [0.0, 2.5, 3.0, 4.0]  # mean of 0; 1 and 4; 2 and 4; 4
    assert both[1].tolist() == [0.0, 1.0, 2.0, 4.0]
    assert both[2].tolist() == [0.0, 4.0, 4.0, 4.0]


@pytest.mark.parametrize(
    'span, places',
    [(Span(), [0, 5, 9]), (Span(4, 7), [5]), (Span(20, 30), [])],
)
def test_a_chart_shows_the_part_that_was_asked_for(span, places):
    series = {'a': points([1.0, 2.0, 3.0], steps=[0, 5, 9])}
    chart = ChartRequest('step', span, [['a'], ['missing']]).chart(series)
    assert chart['x'] == places
    assert [curve['runs'] for curve in chart['curves']] == ([['a']] if places else [])


def test_many_curves_come_without_bands():
    series = {str(i): points([1.0, 2.0]) for i in range(13)}
    chart = ChartRequest('step', Span(), [[key] for key in series]).chart(series)
    assert all('low' not in curve for curve in chart['curves'])
    few = ChartRequest('step', Span(), [[key] for key in list(series)[:12]]).chart(
        series
    )
    assert all('low' in curve for curve in few['curves'])
