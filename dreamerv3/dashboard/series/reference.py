"""Reference curves: published scores per task, from a CSV file.

Columns: suite, task, env_frames, seeds, mean, min, max, as in the reference figures.
"""

import csv
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from embodied.core.errors import ConfigError

__all__ = ['Reference', 'frames_per_step', 'read_reference']

COLUMNS = ('suite', 'task', 'env_frames', 'seeds', 'mean', 'min', 'max')
MOST_REPEATS = 1_000_000  # frames per step that a run is believed


class Reference(NamedTuple):
    """Scores of one task over environment frames; each [N] float64."""

    suite: str
    task: str
    frames: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    seeds: int

    def is_of(self, task: str) -> bool:
        """Whether it is about this task: `atari_pong` of the suite `atari100k` is our
        `atari100k_pong`."""
        name = self.task.partition('_')[2]
        return task in (self.task, f'{self.suite}_{name}')


def read_reference(path: str | Path) -> list[Reference]:
    """The curves of a file, in its order."""
    try:
        with Path(path).expanduser().open(newline='') as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as e:
        raise ConfigError(f"Cannot read the reference '{path}': {e}.") from e
    missing = [name for name in COLUMNS if not rows or name not in rows[0]]
    if missing:
        raise ConfigError(
            f"The reference '{path}' lacks {', '.join(missing)}. "
            f'Its first line must name the columns {",".join(COLUMNS)}.'
        )
    curves: dict[tuple[str, str], list[dict[str, str]]] = {}
    for row in rows:
        curves.setdefault((row['suite'], row['task']), []).append(row)
    return [_curve(path, *key, rows) for key, rows in curves.items()]


def frames_per_step(options: dict[str, Any], task: str) -> float:
    """Environment frames per step of a run: its action repeat."""
    repeat = options.get(f'env.{task.partition("_")[0]}.repeat', 1)
    known = isinstance(repeat, int | float) and 0 < repeat <= MOST_REPEATS
    return float(repeat) if known else 1.0


def _curve(
    path: str | Path, suite: str, task: str, rows: Iterable[dict[str, str]]
) -> Reference:
    try:
        rows = sorted(rows, key=lambda row: float(row['env_frames']))
        frames, mean, low, high = (
            np.array([float(row[name]) for row in rows])
            for name in ('env_frames', 'mean', 'min', 'max')
        )
        seeds = max(int(row['seeds']) for row in rows)
    except (TypeError, ValueError) as e:
        raise ConfigError(
            f"The reference '{path}' has something else than a number for {task}: {e}."
        ) from e
    return Reference(suite, task, frames, mean, low, high, seeds)
