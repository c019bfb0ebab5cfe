"""The series of files are what the files say, at any moment of their being written."""

import os

import numpy as np
import pytest
from sample_runs import append, line, make_run

from dreamerv3.dashboard.series.buckets import MOST_BUCKETS
from dreamerv3.dashboard.series.file_series import FileSeries
from dreamerv3.dashboard.series.records import READ
from dreamerv3.dashboard.series.series_cache import SeriesCache

PARTS = 3 * READ // 35  # lines of a file that is read in several parts


@pytest.fixture
def path(tmp_path):
    (tmp_path / 'run').mkdir()
    return tmp_path / 'run' / 'metrics.jsonl'


@pytest.fixture
def cache():
    return SeriesCache()


def write_lines(path, start, stop):
    records = ({'step': i, 'time': 2.0 * i, 'a': i % 7.0} for i in range(start, stop))
    append(path, *records)


def read(cache, path, name='a'):
    """The metric, once the cache has read the whole file."""
    while (run := cache.read([path.parent], [name])[path.parent]).share < 1:
        pass
    return run.series.get(name)


def check_whole(series, count):
    """Whether the series is that of so many lines."""
    assert series['count'].sum() == count
    assert (np.diff(series['step']) > 0).all()
    expected = np.mean(np.arange(count) % 7)
    mean = (series['mean'] * series['count']).sum() / count
    np.testing.assert_allclose(mean, expected)


def test_a_growing_file_is_followed_line_by_line(cache, path):
    written = 0
    for count in (10, 2000, 2005, PARTS):
        write_lines(path, written, count)
        check_whole(read(cache, path), count)
        written = count


def test_half_a_line_waits_for_its_other_half(cache, path):
    write_lines(path, 0, 3)
    with path.open('a') as file:
        file.write('{"step": 3, "time": 6.0, ')
    check_whole(read(cache, path), 3)
    with path.open('a') as file:
        file.write('"a": 3.0}\n')
    check_whole(read(cache, path), 4)


@pytest.mark.parametrize('count', [3, 5000])
def test_a_file_that_was_replaced_is_read_from_its_start(cache, path, count):
    write_lines(path, 0, count)
    assert read(cache, path)['step'][0] < 10
    path.unlink()
    write_lines(path, 5_000_000, 5_000_000 + 2 * count)  # longer than the one before
    series = read(cache, path)
    assert series['step'][0] >= 5_000_000
    assert series['count'].sum() == 2 * count
    path.unlink()
    assert read(cache, path) is None


def test_a_file_that_was_cut_is_read_from_its_start(cache, path):
    write_lines(path, 0, 5000)
    read(cache, path)
    lines = path.read_bytes().splitlines(keepends=True)
    os.truncate(path, len(b''.join(lines[:500])))
    check_whole(read(cache, path), 500)


def test_a_large_file_is_seen_from_end_to_end_before_it_is_read(path):
    write_lines(path, 0, PARTS)
    cache = SeriesCache(within=0)  # a part of the file per question
    assert cache.names([path.parent]) == ['a']
    run = cache.read([path.parent], ['a'])[path.parent]
    assert 0.2 < run.share < 0.5
    series = run.series['a']
    assert series['step'][0] < MOST_BUCKETS
    assert series['step'][-1] > 0.99 * PARTS
    assert np.diff(series['step']).max() < 0.01 * PARTS
    check_whole(read(cache, path), PARTS)


def test_several_files_are_read_evenly(tmp_path):
    folders = [tmp_path / 'one', tmp_path / 'two']
    for folder in folders:
        folder.mkdir()
        write_lines(folder / 'metrics.jsonl', 0, PARTS)
    cache = SeriesCache(within=0)
    for _ in range(2):
        runs = cache.read(folders, ['a'])
    assert runs[folders[0]].share == runs[folders[1]].share < 0.5


def test_metrics_come_and_go_between_lines(cache, path):
    for i in range(300):
        extra = {'rare': i} if i % 100 == 0 else {'text': 'x', 'nothing': None}
        append(path, line(i) | extra)
    assert read(cache, path, 'rare')['step'].tolist() == [0, 10_000, 20_000]
    assert read(cache, path, 'text') is None
    updates = read(cache, path, 'train/updates')
    assert updates['mean'].tolist() == [25.0 * i for i in range(300)]


def test_many_series_become_coarser_but_lose_no_point(path):
    write_lines(path, 0, 5000)
    cache = SeriesCache(most_bytes=100 * 48)
    series = read(cache, path)
    assert 10 < len(series) <= 100
    write_lines(path, 5000, 10_000)
    series = read(cache, path)
    assert len(series) <= 100
    check_whole(series, 10_000)


def test_runs_that_are_gone_are_forgotten(cache, path):
    write_lines(path, 0, 10)
    read(cache, path)
    cache.retain([])
    assert cache._files == {}
    check_whole(read(cache, path), 10)


def test_a_file_can_be_read_for_a_few_metrics_with_every_point(path):
    for i in range(2 * MOST_BUCKETS):
        append(path, line(i))
    file = FileSeries(path, limit=np.inf, only=['fps/env']).read()
    assert list(file.series) == ['fps/env']
    assert len(file.series['fps/env'].buckets) == 2 * MOST_BUCKETS


def test_what_is_not_read_yet_has_its_places_already(tmp_path):
    runs = [make_run(tmp_path / name, 60) for name in ('one', 'two')]
    names = ['scores/score', 'train/loss/total']
    found = SeriesCache(within=0.0).read(runs, names)
    assert max(run.share for run in found.values()) < 1
    for name in names:
        one, two = (found[run].over(name, 'time') for run in runs)
        np.testing.assert_array_equal(one, two)
        assert one['time'][0] == 5.0
    assert len(found[runs[1]].series['train/loss/total']) == 60  # each line once
