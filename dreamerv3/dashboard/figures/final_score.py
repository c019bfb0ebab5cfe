"""Final score: one definition for `dreamer plot`, `dreamer sweep` and the benches."""

from pathlib import Path

import numpy as np

from ..series.buckets import forward
from ..series.file_series import FileSeries

__all__ = ['DEFINITION', 'final_score', 'final_value']

LAST = 0.1  # share of a run's steps, at its end
SCORE = 'scores/score'
DEFINITION = "Final score: mean of the episodes in the last tenth of a run's steps."


def final_value(x: np.ndarray, values: np.ndarray) -> float:
    """Mean of the values at the end of a run; x and values are [N], x in order."""
    return float(values[x >= (1 - LAST) * x[-1]].mean())


def final_score(folder: Path) -> float | None:
    """Final score of the training episodes of a run; None if none has ended."""
    file = FileSeries(folder / 'scores.jsonl', np.inf, only=[SCORE]).read()
    if SCORE not in file.series:
        return None
    points = forward(file.series[SCORE].buckets)
    return final_value(points['step'], points['mean'])
