"""Decimated series: points in the order they were written, averaged in buckets.

A bucket holds the mean step, time and value, the lowest and highest value, and the
number of its points. All buckets of a series but the last hold `stride` points, a power
of two that doubles when there are too many of them, so a series of any length has a
bounded size and each point counts.
"""

from typing import NamedTuple

import numpy as np

__all__ = [
    'BUCKET',
    'EMPTY',
    'MOST_BUCKETS',
    'Series',
    'forward',
    'joined',
    'single',
    'thin',
]

MOST_BUCKETS = 1024  # per series: more than a chart has pixels

BUCKET = np.dtype([
    ('step', 'f8'),
    ('time', 'f8'),
    ('mean', 'f8'),
    ('low', 'f8'),
    ('high', 'f8'),
    ('count', 'i8'),
])  # fmt: skip


def single(points: np.ndarray) -> np.ndarray:
    """Buckets of one point each from rows of step, time, value: [N, 3] float64."""
    buckets = np.empty(len(points), BUCKET)
    buckets['step'], buckets['time'] = points[:, 0], points[:, 1]
    buckets['mean'] = buckets['low'] = buckets['high'] = points[:, 2]
    buckets['count'] = 1
    return buckets


class Series(NamedTuple):
    """Buckets [N] and the number of points that fill one."""

    buckets: np.ndarray
    stride: int = 1

    def append(self, points: np.ndarray, limit: float = MOST_BUCKETS) -> 'Series':
        """The series with more points behind it, given as buckets of one.

        limit: most buckets of the result.
        """
        buckets = np.concatenate([self.buckets, points])
        stride, count = self.stride, buckets['count'].sum()
        while count > stride * limit:
            stride *= 2
        before = np.cumsum(buckets['count']) - buckets['count']
        return Series(_merge(buckets, before // stride), stride)


EMPTY = Series(np.empty(0, BUCKET))


def thin(buckets: np.ndarray, limit: int) -> np.ndarray:
    """At most `limit` buckets, each of as many neighbors."""
    if len(buckets) <= limit:
        return buckets
    return _merge(buckets, np.arange(len(buckets)) * limit // len(buckets))


def forward(buckets: np.ndarray, axis: str = 'step') -> np.ndarray:
    """The buckets without those that a run has repeated after a crash.

    Their places on the axis never go back.
    """
    lowest_after = np.minimum.accumulate(buckets[axis][::-1])[::-1]
    return buckets[buckets[axis] <= lowest_after]


def joined(buckets: np.ndarray, axis: str) -> np.ndarray:
    """Neighbors at the same place on the axis as one bucket."""
    return _merge(buckets, np.cumsum(np.diff(buckets[axis], prepend=np.nan) != 0))


def _merge(buckets: np.ndarray, group: np.ndarray) -> np.ndarray:
    """One bucket per run of equal numbers in `group`."""
    starts = np.flatnonzero(np.diff(group, prepend=-1))
    if len(starts) == len(buckets):
        return buckets
    merged = np.empty(len(starts), BUCKET)
    counts = np.add.reduceat(buckets['count'], starts)
    for key in ('step', 'time', 'mean'):
        sums = np.add.reduceat(buckets[key] * buckets['count'], starts)
        merged[key] = sums / counts
    merged['low'] = np.minimum.reduceat(buckets['low'], starts)
    merged['high'] = np.maximum.reduceat(buckets['high'], starts)
    merged['count'] = counts
    return merged
