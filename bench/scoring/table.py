"""Table: interquartile means over seeds with their intervals, as Markdown."""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .arms import Run
from .curves import Curve, load_curves, load_reference
from .intervals import bootstrap_interval, interquartile_mean

__all__ = ['Scores', 'markdown', 'scores_of']

LAST = 0.75  # without a window, scores begin at this share of the frames
HEAD = (
    'task',
    'preset',
    'frames',
    'IQM',
    '95 %',
    'seeds',
    'published',
    'hours per run',
)


class Scores(NamedTuple):
    """What the seeds of one group reached in a window of frames."""

    group: Run
    window: tuple[float, float]
    values: np.ndarray  # [seeds], mean return of the training episodes
    published: float  # the same of the reference, NaN without one
    hours: float  # mean over the seeds


def scores_of(
    group: Run,
    state: Path,
    reference: Path | None,
    window: tuple[float, float] | None = None,
) -> Scores | None:
    """None without a seed that ended an episode in the window.

    window: in frames; None is the last quarter of what all seeds have reached.
    """
    curves = load_curves(group, state)
    if not curves:
        return None
    end = min(curve.reached for curve in curves)
    begin, end = window or (LAST * end, end)
    values = np.array([curve.score(begin, end) for curve in curves])
    values = values[np.isfinite(values)]
    if not len(values):
        return None
    bins = load_reference(reference, group.preset, group.task) if reference else []
    inside = [b.mean for b in bins if begin < b.edge <= end]
    published = float(np.mean(inside)) if inside else math.nan
    return Scores(group, (begin, end), values, published, _hours(curves))


def markdown(rows: Iterable[Scores]) -> str:
    """One line per group."""
    lines = [HEAD, ('---',) * len(HEAD), *map(_cells, rows)]
    return '\n'.join(f'| {" | ".join(line)} |' for line in lines)


def _cells(row: Scores) -> Sequence[str]:
    interval = bootstrap_interval([row.values])
    begin, end = row.window
    return (
        row.group.task,
        row.group.group.removesuffix(f'-{row.group.task}'),
        f'{begin:,.0f} to {end:,.0f}',
        _number(interquartile_mean(row.values)),
        ' to '.join(map(_number, interval)) if interval else '',
        ', '.join(map(_number, row.values)),
        _number(row.published),
        '' if math.isnan(row.hours) else f'{row.hours:.2f}',
    )


def _number(x: Any) -> str:
    x = float(x)
    if math.isnan(x):
        return ''
    return f'{x:,.0f}' if abs(x) >= 100 else f'{x:.1f}'


def _hours(curves: Sequence[Curve]) -> float:
    """Mean over those that are known."""
    known = [x for curve in curves if math.isfinite(x := curve.hours)]
    return float(np.mean(known)) if known else math.nan
