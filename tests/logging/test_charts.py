import pytest

from embodied.logging import charts


@pytest.mark.parametrize(
    'values, width, expected',
    [
        ([], 5, ''),
        ([3], 5, '▁'),
        ([2, 2, 2], 5, '▁▁▁'),
        ([0, 7, 3], 5, '▁█▄'),
        ([0, 0, 7, 7], 2, '▁█'),
        ([0, float('nan'), 1], 5, '▁█'),
    ],
)
def test_sparkline_spans_lowest_to_highest(values, width, expected):
    assert charts.sparkline(values, width) == expected


def test_chart_fills_columns_in_proportion():
    lines = charts.chart([0, 1, 2, 3, 4, 9, -9], height=2, low=0, high=4)
    assert lines == ['   ▄██ ', ' ▄████ ']


def test_resampling_averages_many_values_and_repeats_few():
    assert charts.resample([1, 3, 5, 7], 2).tolist() == [2, 6]
    assert charts.resample([1, 3], 4).tolist() == [1, 3]
    assert charts.resample([1, 3], 4, stretch=True).tolist() == [1, 1, 3, 3]
    assert charts.resample([], 4, stretch=True).tolist() == []


@pytest.mark.parametrize(
    'seconds, text',
    [
        (0, '0:00'),
        (7.9, '0:07'),
        (754, '12:34'),
        (12_069, '3:21:09'),
        (90_000 + 86_400 * 4, '5 d 1 h'),
    ],
)
def test_durations_read_like_a_clock(seconds, text):
    assert charts.duration(seconds) == text
