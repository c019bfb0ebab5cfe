"""Distribution of scores or lengths of episodes: histograms with the same bins."""

from collections.abc import Mapping
from typing import Any

import numpy as np

__all__ = ['distributions']

MOST_BINS = 40
LARGEST_WHOLE = 2**52  # up to which bins around whole numbers are exact


def distributions(values: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Shares of the episodes of each group in common bins, and figures of each.

    values: [N] float64 of each group.
    """
    known = {key: found for key, found in values.items() if len(found)}
    if not known:
        return {'edges': [], 'groups': {}}
    with np.errstate(over='ignore', invalid='ignore'):  # of a file with any numbers
        edges = bin_edges(np.concatenate(list(known.values())))
        groups = {key: _figures(found, edges) for key, found in known.items()}
    return {'edges': edges.tolist(), 'groups': groups}


def bin_edges(values: np.ndarray) -> np.ndarray:
    """One bin for each whole number if they are few, else bins of equal width."""
    low, high = values.min(), values.max()
    exact = max(-low, high) < LARGEST_WHOLE
    if exact and high - low < MOST_BINS and np.all(values == np.round(values)):
        return np.arange(low, high + 2) - 0.5
    if low == high:
        margin = max(0.5, np.spacing(abs(high)))
        return np.array([low - margin, high + margin])
    # By halves, since the whole width may be more than a number can be.
    return 2 * np.linspace(low / 2, high / 2, MOST_BINS + 1)


def _figures(values: np.ndarray, edges: np.ndarray) -> dict[str, Any]:
    counts, _ = np.histogram(values, edges)
    low, quarter, median, three_quarters, high = np.quantile(
        values, (0, 0.25, 0.5, 0.75, 1)
    ).tolist()
    return {
        'shares': (counts / len(values)).tolist(),
        'episodes': len(values),
        'mean': float(values.mean()),
        'std': float(values.std()),
        'low': low,
        'quarter': quarter,
        'median': median,
        'three_quarters': three_quarters,
        'high': high,
    }
