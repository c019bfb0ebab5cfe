"""Drawing: a figure per task, with the curves of all groups and of the reference."""

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from .arms import PRESETS, Run
from .curves import load_curves, load_reference

__all__ = ['draw_task']


def draw_task(
    groups: Sequence[Run], state: Path, reference: Path | None, folder: Path
) -> None:
    """Writes FOLDER/<task>.png: per group a curve with the range of its seeds, dashed
    where not all of them came, and what the reference has up to there.

    groups: of one task.
    """
    # Machines that only train need neither this package nor a library for figures.
    from dreamerv3.dashboard.figures import experiments, figure

    task, shown = groups[0].task, []
    for group in groups:
        curves = load_curves(group, state)
        runs = [experiments.RunCurve(x.frames, x.scores) for x in curves]
        seeds = f'{len(runs)} seed{"s" if len(runs) > 1 else ""}'
        label = f'{group.group.removesuffix(f"-{task}")}, {seeds}'
        shown += [experiments.Experiment(task, label, runs)] if runs else []
    if shown:
        end = max(one.end for one in shown)
        known = _reference(groups, reference, end) if reference else []
        path = folder / f'{task}.png'
        figure.draw(path, shown, known, figure.Look())
        print(f'Figure: {path}', file=sys.stderr)


def _reference(groups: Sequence[Run], path: Path, end: float) -> list:
    """The curve of the first group that has one, up to the bin in which all end."""
    from dreamerv3.dashboard.series.reference import Reference

    for group in groups:
        bins = load_reference(path, group.preset, group.task)
        bins = bins[: sum(b.edge < end for b in bins) + 1]
        if bins:
            edges, mean, low, high = (np.array(x) for x in zip(*bins, strict=True))
            suite = PRESETS[group.preset].reference
            return [Reference(suite, group.task, edges, mean, low, high, seeds=0)]
    return []
