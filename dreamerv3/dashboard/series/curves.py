"""Curves to draw: the series of a run out of the index and out of its newest lines."""

import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..runs.files import open_plain
from . import buckets
from .records import FILES, READ, SCORES, read_parts, sample_lines
from .series_index import Index

__all__ = [
    'Curves',
    'Span',
    'combine',
    'common_grid',
    'home',
    'over',
    'resample',
]

# A file that has grown by less is read to its end; of a larger rest, which the index
# has yet to take in, some lines give the picture until it has.
EXACT = READ  # bytes
SAMPLES = 1500  # lines that are sampled for one answer, over all its runs
FEWEST_SAMPLES = 20  # of them per run


class Span(NamedTuple):
    """Part of an axis."""

    start: float = -np.inf
    stop: float = np.inf


class Curves:
    """Reads series of runs, of any length, while they are being written."""

    def __init__(self, index: Index):
        self._index = index

    def names(self, folder: Path) -> list[str]:
        """The metrics of a run."""
        found: set[str] = set()
        for filename in FILES:
            offset, names = self._index.names(folder / filename)
            found.update(names)
            found.update(self._newest(folder / filename, offset, FEWEST_SAMPLES))
        return sorted(found)

    def read(
        self, folder: Path, names: Collection[str], runs: int = 1
    ) -> dict[str, np.ndarray]:
        """Buckets of the metrics in the order of writing.

        `runs` is how many an answer is made of: they share the lines to be sampled.
        """
        samples = max(FEWEST_SAMPLES, SAMPLES // runs)
        series: dict[str, np.ndarray] = {}
        for filename in FILES:
            here = [name for name in names if home(name) == filename]
            if not here:
                continue
            path = folder / filename
            offset, known = self._index.read(path, here)
            newest = self._newest(path, offset, samples, here)
            for name in here:
                parts = [part[name] for part in (known, newest) if name in part]
                if parts:
                    series[name] = np.concatenate(parts)
        return series

    def _newest(
        self,
        path: Path,
        offset: int,
        samples: int,
        names: Collection[str] | None = None,
    ) -> dict[str, np.ndarray]:
        with open_plain(path) as file:
            if not file:
                return {}
            end, parse = os.fstat(file.fileno()).st_size, FILES[path.name]
            if end - offset > EXACT:
                return dict(sample_lines(file, offset, samples, parse).series(names))
            parts = list(read_parts(file, offset, end, parse))
        return dict(parts[0][2].series(names)) if parts else {}


def over(series: np.ndarray, axis: str) -> np.ndarray:
    """The series in order of its steps, or of seconds since its first point."""
    if axis == 'step':
        return buckets.forward(series)
    series = np.sort(series, order='time')
    series['time'] -= series['time'][0]
    return series


def common_grid(
    curves: Sequence[np.ndarray], axis: str, span: Span, points: int
) -> np.ndarray:
    """Places at which all curves are drawn: their own if few, else evenly spaced."""
    own = np.concatenate([curve[axis] for curve in curves])
    own = np.unique(own[(own >= span.start) & (own <= span.stop)])
    if len(own) <= 2 * points:
        return own
    return np.linspace(own[0], own[-1], points)


def resample(curve: np.ndarray, axis: str, grid: np.ndarray) -> np.ndarray:
    """Mean, low and high on the grid, NaN outside of the curve: float64 [3, G]."""
    inside = curve[(curve[axis] >= grid[0]) & (curve[axis] <= grid[-1])]
    if len(inside) > len(grid):  # so that no bucket falls between two places
        curve = buckets.thin(inside, len(grid))
    return np.stack([
        np.interp(grid, curve[axis], curve[key], left=np.nan, right=np.nan)
        for key in ('mean', 'low', 'high')
    ])  # fmt: skip


def combine(curves: Sequence[np.ndarray]) -> np.ndarray:
    """Mean, lowest and highest mean of resampled curves, of those that are there.

    Curves and result are [3, G]; where there is none it is NaN.
    """
    means = np.stack([curve[0] for curve in curves])
    result = np.full((3, means.shape[1]), np.nan)
    some = np.isfinite(means).any(0)
    there = means[:, some]
    result[:, some] = np.nanmean(there, 0), np.nanmin(there, 0), np.nanmax(there, 0)
    return result


def home(name: str) -> str:
    """The file that a metric is in."""
    return 'scores.jsonl' if name.startswith(SCORES) else 'metrics.jsonl'
