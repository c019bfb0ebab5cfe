"""Decimated series and curves, against values worked out by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dreamerv3.dashboard.series import buckets
from dreamerv3.dashboard.series.chart_data import Asked
from dreamerv3.dashboard.series.curves import Span, combine, common_grid, over, resample


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


def test_a_full_series_doubles_its_stride(monkeypatch):
    monkeypatch.setattr(buckets, 'MOST_BUCKETS', 3)
    series = buckets.EMPTY.append(points([1.0, 3.0, 5.0, 7.0, 2.0]))
    assert series.stride == 2
    assert series.buckets['mean'].tolist() == [2.0, 6.0, 2.0]
    assert series.buckets['low'].tolist() == [1.0, 5.0, 2.0]
    assert series.buckets['high'].tolist() == [3.0, 7.0, 2.0]
    assert series.buckets['step'].tolist() == [0.5, 2.5, 4.0]
    assert series.buckets['count'].tolist() == [2, 2, 1]


def test_steps_that_were_played_again_replace_those_of_before():
    series = points([1.0, 2.0, 3.0, 4.0, 5.0], steps=[0, 10, 20, 12, 22])
    curve = over(series, 'step')
    assert curve['step'].tolist() == [0, 10, 12, 22]
    assert curve['mean'].tolist() == [1.0, 2.0, 4.0, 5.0]
    assert over(series, 'time')['time'].tolist() == [0, 10, 20, 30, 40]


def test_a_band_spans_the_runs_that_are_there():
    first, second = points([0.0, 2.0], steps=[0, 2]), points([4.0, 4.0], steps=[1, 4])
    grid = common_grid([first, second], 'step', Span(), points=10)
    assert grid.tolist() == [0, 1, 2, 4]
    both = combine([resample(curve, 'step', grid) for curve in (first, second)])
    assert both[0].tolist() == [0.0, 2.5, 3.0, 4.0]  # mean of 0; 1 and 4; 2 and 4; 4
    assert both[1].tolist() == [0.0, 1.0, 2.0, 4.0]
    assert both[2].tolist() == [0.0, 4.0, 4.0, 4.0]


@pytest.mark.parametrize(
    'span, places',
    [(Span(), [0, 5, 9]), (Span(4, 7), [5]), (Span(20, 30), [])],
)
def test_a_chart_shows_the_part_that_was_asked_for(span, places):
    series = {'a': points([1.0, 2.0, 3.0], steps=[0, 5, 9])}
    chart = Asked('step', span, [['a'], ['missing']]).chart(series)
    assert chart['x'] == places
    assert [curve['runs'] for curve in chart['curves']] == ([['a']] if places else [])


def test_many_curves_come_without_bands():
    series = {str(i): points([1.0, 2.0]) for i in range(13)}
    chart = Asked('step', Span(), [[key] for key in series]).chart(series)
    assert all('low' not in curve for curve in chart['curves'])
    few = Asked('step', Span(), [[key] for key in list(series)[:12]]).chart(series)
    assert all('low' in curve for curve in few['curves'])
