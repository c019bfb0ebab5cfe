"""Curves: series of several runs on common places, and their mean."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from . import buckets

__all__ = ['Span', 'combine', 'common_grid', 'complete', 'resample']


class Span(NamedTuple):
    """Part of an axis."""

    start: float = -np.inf
    stop: float = np.inf


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


def complete(curves: Sequence[np.ndarray]) -> int:
    """How many places there are up to the last one at which all curves are there.

    Behind it some have ended, and means of fewer curves may jump.
    """
    there = np.stack([np.isfinite(curve[0]) for curve in curves]).all(0)
    return int(np.flatnonzero(there).max(initial=-1)) + 1


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
