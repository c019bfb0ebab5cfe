"""Experiments: runs that differ only by seed, as curves over bins of steps."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from embodied.core import manual
from embodied.core.errors import ConfigError

from ..runs.folders import Run
from ..runs.options import PERSONAL, read_options
from ..series.reference import frames_per_step
from ..series.series_cache import read_run
from .final_score import final_value

__all__ = ['BANDS', 'STATISTICS', 'Experiment', 'RunCurve', 'find_experiments']

STATISTICS = ('mean', 'median')
BANDS = ('range', 'std', 'quartiles', 'none')
LONGEST_LABEL = 60  # characters


class RunCurve(NamedTuple):
    """One run: its points [N] over steps, or over frames or hours, in order.

    last: the final value over steps, if x is something else.
    """

    x: np.ndarray
    values: np.ndarray
    options: dict[str, Any] = {}  # by dotted names
    name: str = ''
    last: float | None = None

    @property
    def end(self) -> float:
        return float(self.x[-1])

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
        """Mean value in the last tenth of the steps of the run."""
        return final_value(self.x, self.values) if self.last is None else self.last


class Experiment(NamedTuple):
    """Runs of one task with the same options."""

    task: str
    label: str
    runs: Sequence[RunCurve]

    @property
    def end(self) -> float:
        """Where the longest run ends."""
        return max(run.end for run in self.runs)

    @property
    def seeds(self) -> int:
        """Distinct seeds of the runs; a run without options has one of its own."""
        known = [run.options['seed'] for run in self.runs if 'seed' in run.options]
        return len(set(map(str, known))) + len(self.runs) - len(known)

    def complete(self, edges: np.ndarray) -> int:
        """How many bins there are up to the last one in which all runs have a value.

        Behind it some have ended, and means of fewer runs may jump.
        """
        values = np.stack([run.binned(edges) for run in self.runs])
        return int(np.flatnonzero(np.isfinite(values).all(0)).max(initial=-1)) + 1

    def curve(
        self, edges: np.ndarray, statistic: str, band: str
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Middle, low and high over the runs in each bin; NaN where there is none."""
        values = np.stack([run.binned(edges) for run in self.runs])
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
    curves = [c for run in runs if (c := _read(run, metric, axis, in_frames))]
    if not curves:
        names = ', '.join(run.name for run in runs[:5]) or 'none'
        raise ConfigError(
            f"No run has a metric '{metric}' (runs: {names}). Scores of episodes are "
            'scores/score and scores/eval/score; the others are in '
            f'{manual.page("metrics.md")}.'
        )
    tasks: dict[str, list[RunCurve]] = {}
    for curve in curves:
        tasks.setdefault(str(curve.options.get('task', '')), []).append(curve)
    varied = _varied(list(tasks.values()))
    found = []
    for task, members in sorted(tasks.items()):
        groups: dict[tuple[str, ...], list[RunCurve]] = {}
        for curve in members:
            # Without options nothing says that runs belong together.
            values = [f'{name}={curve.options.get(name)}' for name in varied]
            key = tuple(values) if curve.options else (curve.name,)
            groups.setdefault(key, []).append(curve)
        found += [Experiment(task, _label(key, g), g) for key, g in groups.items()]
    return found


def _read(run: Run, metric: str, axis: str, in_frames: bool) -> RunCurve | None:
    found = read_run(run.path, metric)
    if metric not in found.series:
        return None
    points = found.over(metric, axis)
    options = read_options(run.path / 'config.yaml')
    task = str(options.get('task', ''))
    scale = frames_per_step(options, task) if in_frames else 1
    x = points['time'] / 3600 if axis == 'time' else points['step'] * scale
    steps = found.over(metric, 'step')
    last = final_value(steps['step'], steps['mean'])
    return RunCurve(x, points['mean'], options, run.name, last)


def _varied(tasks: list[list[RunCurve]]) -> list[str]:
    """Options that make different experiments of runs of the same task."""
    found: dict[str, None] = {}
    for runs in tasks:
        names = dict.fromkeys(name for run in runs for name in run.options)
        for name in names:
            values = {str(run.options.get(name)) for run in runs}
            if len(values) > 1 and name not in PERSONAL:
                found[name] = None
    return list(found)


def _label(key: tuple[str, ...], runs: list[RunCurve]) -> str:
    label = ', '.join(key)
    return label if len(label) <= LONGEST_LABEL else runs[0].name
