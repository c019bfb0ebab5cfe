"""Filling: all recorded steps reach the replay, in order and in sequences."""

import numpy as np
import pytest
from recordings import episode, flagged

from embodied.datasets import fill
from embodied.replay import Replay

LENGTH = 8


def filled(lengths, stop=lambda: None, steps=None):
    steps = sum(lengths) if steps is None else steps
    replay = Replay(LENGTH, max(steps, LENGTH), chunksize=16)
    episodes = (flagged(episode(n, length)) for n, length in enumerate(lengths))
    return replay, fill(replay, episodes, steps, stop)


def streams_of(replay):
    """Pairs of episode and step of each stream, in order."""
    store = replay._store
    rows = {}
    for worker in store.streams.workers:
        rows[worker] = []
    table = store.index.table
    for chunk in np.flatnonzero(table['live']):
        from embodied.replay.sampling.index import join

        record = table[chunk]
        inside = np.arange(record['first'], record['fill'])
        positions = join(int(chunk + store.index.base), inside)
        values = store.read('vector', positions).astype(int).tolist()
        rows[int(record['stream'])] += [tuple(x) for x in values]
    return rows


@pytest.mark.parametrize(
    'lengths',
    [
        [40] * 40,
        [3] * 500,  # shorter than a sequence
        [1] * 300,
        [2000, 3, 3, 3],  # one of them holds nearly all steps
        [3, 3, 3, 2000],
        [8],
    ],
)
def test_every_step_is_in_one_stream_after_the_one_before_it(lengths):
    replay, result = filled(lengths)
    assert (result.episodes, result.steps) == (len(lengths), sum(lengths))
    streams = streams_of(replay)
    stored = [row for rows in streams.values() for row in rows]
    expected = [(n, t) for n, length in enumerate(lengths) for t in range(length)]
    assert sorted(stored) == expected
    for rows in streams.values():
        for before, after in zip(rows, rows[1:], strict=False):
            ends = before[1] == lengths[before[0]] - 1
            assert after == (before[0], before[1] + 1) or (ends and after[1] == 0)


@pytest.mark.parametrize('lengths', [[3] * 500, [2000, 3, 3, 3], [1] * 300, [70] * 90])
def test_no_stream_is_too_short_for_a_sequence(lengths):
    replay, _ = filled(lengths)
    assert min(map(len, streams_of(replay).values())) >= LENGTH


def test_fewer_steps_than_a_sequence_give_none():
    replay, result = filled([3, 3])
    assert result.complete
    assert len(replay) == 0


def test_many_steps_are_spread_over_streams_of_many_sequences():
    replay, _ = filled([40] * 80)
    streams = streams_of(replay)
    assert len(streams) == 3200 // (16 * LENGTH)
    assert min(map(len, streams.values())) >= 80


def test_it_stops_when_it_is_told_to():
    calls = iter([False] * 5 + [True])
    replay, result = filled([40] * 40, lambda: next(calls))
    assert not result.complete
    assert replay.stats()['steps'] == 5 * (1600 // (16 * LENGTH))
