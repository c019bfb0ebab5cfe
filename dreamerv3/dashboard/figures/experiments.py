"""Experiments: runs that differ only by seed, as curves over bins of steps."""

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from embodied.core.errors import ConfigError

from ..runs.files import open_plain
from ..runs.folders import Run
from ..runs.options import PERSONAL, read_options
from ..series import buckets
from ..series.curves import home
from ..series.records import FILES, read_parts
from ..series.reference import frames_per_step

__all__ = ['BANDS', 'STATISTICS', 'Experiment', 'Seed', 'find_experiments']

FINAL = 0.1  # share of a run's steps, at its end, that its final score is the mean of
STATISTICS = ('mean', 'median')
BANDS = ('range', 'std', 'quartiles', 'none')
LONGEST_LABEL = 60  # characters


class Seed(NamedTuple):
    """One run: its points [N] over steps, or over frames or hours."""

    run: Run
    options: dict[str, Any]
    x: np.ndarray
    values: np.ndarray

    def binned(self, edges: np.ndarray) -> np.ndarray:
        """Mean value in each of the bins between `edges`, NaN in empty ones."""
        # A bin includes its right edge, at which it is drawn.
        place = np.searchsorted(edges, self.x, side='left') - 1
        inside = (place >= 0) & (place < len(edges) - 1)
        place, values = place[inside], self.values[inside]
        counts = np.bincount(place, minlength=len(edges) - 1)
        sums = np.bincount(place, values, minlength=len(edges) - 1)
        return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)

    def final(self) -> float:
        """Mean value at the end of the run."""
        return float(self.values[self.x >= (1 - FINAL) * self.x[-1]].mean())


class Experiment(NamedTuple):
    """Seeds of one task with the same options."""

    task: str
    label: str
    seeds: list[Seed]

    @property
    def end(self) -> float:
        return max(float(seed.x[-1]) for seed in self.seeds)

    def curve(
        self, edges: np.ndarray, statistic: str, band: str
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Middle, low and high over the seeds in each bin; NaN where there is none."""
        values = np.stack([seed.binned(edges) for seed in self.seeds])
        result = np.full((3, values.shape[1]), np.nan)
        some = np.isfinite(values).any(0)
        there = values[:, some]
        middle = (np.nanmedian if statistic == 'median' else np.nanmean)(there, 0)
        match band:
            case 'range':
                low, high = np.nanmin(there, 0), np.nanmax(there, 0)
            case 'std':
                spread = np.nanstd(there, 0)
                low, high = middle - spread, middle + spread
            case 'quartiles':
                low, high = np.nanquantile(there, (0.25, 0.75), 0)
            case _:
                low = high = middle
        result[:, some] = middle, low, high
        return result[0], result[1], result[2]


def find_experiments(
    runs: Sequence[Run], metric: str, axis: str, in_frames: bool
) -> list[Experiment]:
    """Reads the metric of all runs and sorts them by task and by what differs."""
    seeds = [seed for run in runs if (seed := _read(run, metric, axis, in_frames))]
    if not seeds:
        names = ', '.join(run.name for run in runs[:5]) or 'none'
        raise ConfigError(
            f"No run has a metric '{metric}' (runs: {names}). Scores of episodes are "
            'scores/score and scores/eval_score; the others are in docs/metrics.md.'
        )
    tasks: dict[str, list[Seed]] = {}
    for seed in seeds:
        tasks.setdefault(str(seed.options.get('task', '')), []).append(seed)
    varied = _varied(list(tasks.values()))
    found = []
    for task, members in sorted(tasks.items()):
        groups: dict[tuple[str, ...], list[Seed]] = {}
        for seed in members:
            # Without options nothing says that runs belong together.
            values = [f'{name}={seed.options.get(name)}' for name in varied]
            key = tuple(values) if seed.options else (seed.run.name,)
            groups.setdefault(key, []).append(seed)
        found += [Experiment(task, _label(key, g), g) for key, g in groups.items()]
    return found


def _read(run: Run, metric: str, axis: str, in_frames: bool) -> Seed | None:
    path = run.path / home(metric)
    parts = []
    with open_plain(path) as file:
        if file:
            end = os.fstat(file.fileno()).st_size
            for _, _, columns in read_parts(file, 0, end, FILES[path.name]):
                parts += [data for _, data in columns.series([metric])]
    if not parts:
        return None
    points = np.concatenate(parts)
    options = read_options(run.path / 'config.yaml')
    if axis == 'time':
        x = (points['time'] - points['time'][0]) / 3600
        return Seed(run, options, x, points['mean'])
    points = buckets.forward(points)
    task = str(options.get('task', ''))
    scale = frames_per_step(options, task) if in_frames else 1
    return Seed(run, options, points['step'] * scale, points['mean'])


def _varied(tasks: list[list[Seed]]) -> list[str]:
    """Options that make different experiments of runs of the same task."""
    found: dict[str, None] = {}
    for seeds in tasks:
        names = dict.fromkeys(name for seed in seeds for name in seed.options)
        for name in names:
            values = {str(seed.options.get(name)) for seed in seeds}
            if len(values) > 1 and name not in PERSONAL:
                found[name] = None
    return list(found)


def _label(key: tuple[str, ...], seeds: list[Seed]) -> str:
    label = ', '.join(key)
    return label if len(label) <= LONGEST_LABEL else seeds[0].run.name
