"""Filling: puts recorded episodes into a replay, many streams at a time."""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np

from ..core.base import Batch
from ..replay import Replay

__all__ = ['Filled', 'fill']

MOST_STREAMS = 64  # rows of one call; more are not faster
SEQUENCES = 16  # per stream at least, so that few steps lie at its end


class Filled(NamedTuple):
    """What went into a replay. complete: False if it was told to stop."""

    episodes: int
    steps: int
    complete: bool


def fill(
    replay: Replay,
    episodes: Iterable[Batch],
    steps: int,
    stop: Callable[[], object] = lambda: None,
) -> Filled:
    """Adds episodes [n, ...] per key; those of one stream follow each other.

    steps: rows of all of them, about. stop: whether to end early.

    Sequences may reach over the end of an episode, as they do in a run. So short
    episodes are not lost: each stream has at least one sequence, if there are enough
    steps at all.
    """
    length = replay.length
    streams = min(MOST_STREAMS, max(1, steps // (SEQUENCES * length)))
    counter = Counter(episodes)
    parts = _joined(counter, length)
    lanes = [Lane(parts) for _ in range(streams)]
    while not stop():
        rows = [
            (worker, row)
            for worker, lane in enumerate(lanes)
            if (row := next(lane, None))
        ]
        if not rows:
            return Filled(counter.episodes, counter.steps, True)
        workers = [worker for worker, _ in rows]
        names = rows[0][1]
        batch = {key: np.stack([row[key] for _, row in rows]) for key in names}
        replay.add_batch(batch, workers)
    return Filled(counter.episodes, counter.steps, False)


class Counter:
    """Counts what comes by."""

    def __init__(self, episodes: Iterable[Batch]):
        self._episodes = iter(episodes)
        self.episodes, self.steps = 0, 0

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        episode = next(self._episodes)
        self.episodes += 1
        self.steps += _rows(episode)
        return episode


class Lane:
    """Rows of one stream, from the next part whenever one is over."""

    def __init__(self, parts: Iterator[list[Batch]]):
        self._parts = parts
        self._rows: Iterator[Batch] = iter(())

    def __iter__(self) -> 'Lane':
        return self

    def __next__(self) -> Batch:
        while (row := next(self._rows, None)) is None:
            part = next(self._parts)
            self._rows = (
                {key: value[t] for key, value in episode.items()}
                for episode in part
                for t in range(_rows(episode))
            )
        return row


def _joined(episodes: Iterable[Batch], length: int) -> Iterator[list[Batch]]:
    """Episodes in parts of at least `length` steps; the only part may have fewer."""
    ready: list[Batch] = []
    growing: list[Batch] = []
    for episode in episodes:
        growing.append(episode)
        if sum(map(_rows, growing)) >= length:
            if ready:
                yield ready
            ready, growing = growing, []
    if ready or growing:
        yield ready + growing


def _rows(episode: Batch) -> int:
    return len(next(iter(episode.values())))
