"""Interquartile means and their bootstrap intervals, as Agarwal et al. (2021) do it.

"Deep reinforcement learning at the edge of the statistical precipice" computes one mean
over the middle half of all runs of all tasks. Its interval comes from drawing runs with
replacement, for each task from its own runs.
"""

from collections.abc import Sequence

import numpy as np

__all__ = ['bootstrap_interval', 'interquartile_mean']

CUT = 0.25  # share of the runs that is left out at either end
LEVEL = 0.95
SAMPLES = 5000


def interquartile_mean(scores: np.ndarray) -> np.ndarray:
    """Mean of the middle half along the last axis [..., N] -> [...].

    A quarter of the values at either end is left out, rounded down to whole values.
    """
    values = np.sort(scores, -1)
    cut = int(CUT * values.shape[-1])
    return values[..., cut : values.shape[-1] - cut].mean(-1)


def bootstrap_interval(
    scores: Sequence[np.ndarray], samples: int = SAMPLES, seed: int = 0
) -> tuple[float, float] | None:
    """Interval of 95 % around the interquartile mean of all runs.

    scores: [seeds] of each task. None if every task has one seed only.
    """
    if all(len(of_task) < 2 for of_task in scores):
        return None
    rng = np.random.default_rng(seed)
    drawn = [
        np.asarray(x, float)[rng.integers(0, len(x), (samples, len(x)))] for x in scores
    ]
    means = interquartile_mean(np.concatenate(drawn, 1))
    outside = (1 - LEVEL) / 2
    low, high = np.quantile(means, (outside, 1 - outside))
    return float(low), float(high)
