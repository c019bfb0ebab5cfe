"""Final score: one definition for `dreamer plot`, `dreamer sweep`, the dashboard and
the benches."""

from pathlib import Path

import numpy as np

from ..series.file_end import last_points

__all__ = ['DEFINITION', 'LAST', 'final_score', 'final_value']

LAST = 0.1  # share of a run's steps, at its end
SCORE = 'scores/score'
DEFINITION = "Final score: mean of the episodes in the last tenth of a run's steps."


def final_value(x: np.ndarray, values: np.ndarray) -> float:
    """Mean of the values at the end of a run; x and values are [N], x in order."""
    return float(values[x >= (1 - LAST) * x[-1]].mean())


def final_score(folder: Path) -> float | None:
    """Final score of the training episodes of a run; None if none has ended."""
    points = last_points(folder / 'scores.jsonl', SCORE, LAST)
    return final_value(points['step'], points['mean']) if len(points) else None
