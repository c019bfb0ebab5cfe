"""The index with the newest lines of a file is what the file says, at any moment."""

import os

import numpy as np
import pytest
from sample_runs import append, line

from dreamerv3.dashboard.series.curves import EXACT, Curves
from dreamerv3.dashboard.series.series_index import PART, Index
from embodied.core.errors import ConfigError


@pytest.fixture
def index(tmp_path):
    return Index(tmp_path / 'cache' / 'index.sqlite')


@pytest.fixture
def path(tmp_path):
    (tmp_path / 'run').mkdir()
    return tmp_path / 'run' / 'metrics.jsonl'


def write_lines(path, start, stop):
    records = ({'step': i, 'time': 2.0 * i, 'a': i % 7.0} for i in range(start, stop))
    append(path, *records)


def catch_up(index, path):
    while index.advance(path):
        pass


def read(index, path, name='a'):
    return Curves(index).read(path.parent, [name]).get(name)


def check_whole(series, count):
    """Whether the series is that of so many lines."""
    assert series['count'].sum() == count
    assert (np.diff(series['step']) > 0).all()
    expected = np.mean(np.arange(count) % 7)
    mean = (series['mean'] * series['count']).sum() / count
    np.testing.assert_allclose(mean, expected)


def test_a_growing_file_is_followed_line_by_line(index, path):
    write_lines(path, 0, 10)
    assert index.advance(path) == 0  # not worth a change of the index
    check_whole(read(index, path), 10)
    many = PART // 20
    write_lines(path, 10, many)
    catch_up(index, path)
    assert index.read(path, None)[0] > 0
    check_whole(read(index, path), many)
    write_lines(path, many, many + 5)
    check_whole(read(index, path), many + 5)
    write_lines(path, many + 5, 3 * many)
    catch_up(index, path)
    check_whole(read(index, path), 3 * many)


def test_an_index_is_found_again(index, path):
    write_lines(path, 0, PART // 20)
    catch_up(index, path)
    again = Index(index.path)
    assert again.read(path, ['a'])[0] == path.stat().st_size
    check_whole(read(again, path), PART // 20)


def test_half_a_line_waits_for_its_other_half(index, path):
    write_lines(path, 0, 3)
    with path.open('a') as file:
        file.write('{"step": 3, "time": 6.0, ')
    check_whole(read(index, path), 3)
    with path.open('a') as file:
        file.write('"a": 3.0}\n')
    check_whole(read(index, path), 4)


def test_a_file_that_was_replaced_is_read_anew(index, path):
    write_lines(path, 0, PART // 15)
    catch_up(index, path)
    path.unlink()
    write_lines(path, 5_000_000, 5_000_000 + PART // 10)  # longer than the one before
    for _ in range(2):
        assert read(index, path)['step'][0] >= 5_000_000
        catch_up(index, path)
    path.unlink()
    assert read(index, path) is None
    index.forget_missing()
    assert index.read(path, None) == (0, {})


def test_a_file_that_was_cut_is_read_anew(index, path):
    write_lines(path, 0, PART // 15)
    catch_up(index, path)
    lines = path.read_bytes().splitlines(keepends=True)
    os.truncate(path, len(b''.join(lines[:500])))
    check_whole(read(index, path), 500)


def test_a_large_file_is_seen_from_end_to_end_before_it_is_indexed(index, path):
    count = 3 * EXACT // 35
    write_lines(path, 0, count)
    series = read(index, path)
    assert 1000 < len(series) < 2000
    assert series['step'][0] == 0
    assert series['step'][-1] > 0.99 * count
    assert np.diff(series['step']).max() < 0.01 * count
    assert Curves(index).names(path.parent) == ['a']
    catch_up(index, path)
    check_whole(read(index, path), count)


def test_metrics_come_and_go_between_lines(index, path):
    for i in range(300):
        extra = {'rare': i} if i % 100 == 0 else {'text': 'x', 'nothing': None}
        append(path, line(i) | extra)
    assert read(index, path, 'rare')['step'].tolist() == [0, 10_000, 20_000]
    assert read(index, path, 'text') is None
    updates = read(index, path, 'train/updates')
    assert updates['mean'].tolist() == [25.0 * i for i in range(300)]


@pytest.mark.parametrize('content', [b'not a database at all' * 100, b''])
def test_a_broken_index_is_made_anew(tmp_path, path, content):
    place = tmp_path / 'broken.sqlite'
    place.write_bytes(content)
    write_lines(path, 0, PART // 20)
    index = Index(place)
    catch_up(index, path)
    check_whole(read(index, path), PART // 20)


def test_a_place_where_no_index_can_be_is_an_error_that_says_so(tmp_path):
    (tmp_path / 'file').write_text('')
    with pytest.raises(ConfigError, match='--index'):
        Index(tmp_path / 'file' / 'index.sqlite')


def test_two_dashboards_share_an_index(index, path):
    write_lines(path, 0, PART // 20)
    other = Index(index.path)
    catch_up(index, path)
    catch_up(other, path)
    write_lines(path, PART // 20, PART // 10)
    catch_up(other, path)
    catch_up(index, path)
    check_whole(read(index, path), PART // 10)
