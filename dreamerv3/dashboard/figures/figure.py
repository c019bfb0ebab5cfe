"""Figures: a panel per task with a curve and a band per experiment."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from embodied.core.errors import ConfigError, MissingExtraError

from ..series.reference import Reference
from .experiments import Experiment

__all__ = ['FORMATS', 'Look', 'draw']

FORMATS = ('.png', '.pdf', '.svg')
MOST_COLUMNS = 4
PANEL = (3.1, 2.35)  # inches
LEGEND = 0.28  # inches per row of it
MANY_BINS = 60
FEW_POINTS = 20  # of a curve, that are marked
NEARLY = 0.75  # of a bin is all of it
# Distinct in hue and in lightness, for print and for the color-blind.
COLORS = (
    '#3566cf',
    '#d4581f',
    '#1f8f58',
    '#a93a96',
    '#a87b00',
    '#0f8799',
    '#c02d45',
    '#6f4fc9',
)
GRAY = '#8a8f98'
STYLE: dict[Any, Any] = {
    'font.size': 8.5,
    'font.family': 'sans-serif',
    'axes.titlesize': 9,
    'axes.spines.top': False,
    'axes.spines.right': False,
    'axes.edgecolor': '#555b66',
    'axes.linewidth': 0.7,
    'axes.grid': True,
    'axes.axisbelow': True,
    'grid.color': '#e8e8e4',
    'grid.linewidth': 0.7,
    'xtick.color': '#555b66',
    'ytick.color': '#555b66',
    'xtick.major.width': 0.7,
    'ytick.major.width': 0.7,
    'lines.linewidth': 1.4,
    'legend.frameon': False,
    # Text stays text: it can be searched, and be edited for a publication.
    'pdf.fonttype': 42,
    'svg.fonttype': 'none',
}


class Look(NamedTuple):
    """How the curves are to be drawn."""

    statistic: str = 'mean'
    band: str = 'range'
    bins: int | None = None  # None: bins of the reference, or MANY_BINS without one
    x_label: str = 'Environment frames'
    y_label: str = 'Episode return'
    dpi: int = 130


def draw(
    path: Path,
    experiments: Sequence[Experiment],
    references: Sequence[Reference],
    look: Look,
) -> None:
    """Writes the figure; the ending of the file's name chooses its format."""
    if path.suffix.lower() not in FORMATS:
        raise ConfigError(
            f"Cannot draw '{path}': its name must end in {', '.join(FORMATS)}."
        )
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as e:
        raise MissingExtraError(
            f"Plots need {e.name}: pip install 'dreamer-parallel[plot]'"
        ) from e
    tasks = list(dict.fromkeys(experiment.task for experiment in experiments))
    labels = list(dict.fromkeys(experiment.label for experiment in experiments))
    colors = {label: COLORS[i % len(COLORS)] for i, label in enumerate(labels)}
    columns = min(MOST_COLUMNS, len(tasks))
    rows = math.ceil(len(tasks) / columns)
    shown = {one.suite for one in references if any(map(one.is_of, tasks))}
    lines = math.ceil((len(labels) + len(shown)) / columns)
    size = (PANEL[0] * columns, PANEL[1] * rows + LEGEND * lines)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=size, layout='constrained')
        axes = figure.subplots(rows, columns, squeeze=False)
        for axis in axes.flat[len(tasks) :]:
            axis.set_axis_off()
        for axis, task in zip(axes.flat, tasks, strict=False):
            here = [one for one in experiments if one.task == task]
            known = [one for one in references if one.is_of(task)]
            _panel(axis, here, known, colors, look)
            axis.set_title(task or 'no task', loc='left')
        for axis in axes[-1]:
            axis.set_xlabel(look.x_label)
        for axis in axes[:, 0]:
            axis.set_ylabel(look.y_label)
        _legend(figure, axes)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=look.dpi)


def _panel(
    axis: Any,
    experiments: Sequence[Experiment],
    references: Sequence[Reference],
    colors: dict[str, str],
    look: Look,
) -> None:
    end = max(experiment.end for experiment in experiments)
    for curve, dash in zip(references, ('--', ':', '-.'), strict=False):
        label = f'Reference ({curve.suite})'
        axis.fill_between(
            curve.frames, curve.low, curve.high, color=GRAY, alpha=0.2, lw=0
        )
        axis.plot(curve.frames, curve.mean, dash, color=GRAY, label=label)
        end = max(end, curve.frames[-1])
    for experiment in experiments:
        edges = _edges(experiment.end, references, look.bins)
        color, label = colors[experiment.label], experiment.label or 'Dreamer Parallel'
        _curve(axis, experiment, edges, look, {'color': color, 'label': label})
    axis.set_xlim(0, end)
    axis.ticklabel_format(axis='x', style='sci', scilimits=(-2, 4), useMathText=True)


def _curve(
    axis: Any,
    experiment: Experiment,
    edges: np.ndarray,
    look: Look,
    line: dict[str, Any],
) -> None:
    """Band and line over the runs; dashed where some of them have ended."""
    middle, low, high = experiment.curve(edges, look.statistic, look.band)
    x = _places(edges, experiment.end)
    some = np.isfinite(middle)
    if len(experiment.runs) > 1 and look.band != 'none':
        style = {'color': line['color'], 'alpha': 0.2, 'linewidth': 0}
        axis.fill_between(x[some], low[some], high[some], **style)
    marker = 'o' if some.sum() <= FEW_POINTS else ''
    line = line | {'marker': marker, 'ms': 3, 'clip_on': False}
    complete = experiment.complete(edges)
    whole = some & (np.arange(len(x)) < complete)
    axis.plot(x[whole], middle[whole], **line)
    rest = some & (np.arange(len(x)) >= complete - 1)
    if rest.sum() > 1 or not complete:
        label = '' if whole.any() else line['label']
        axis.plot(x[rest], middle[rest], **line | {'linestyle': '--', 'label': label})


def _edges(end: float, references: Sequence[Reference], bins: int | None) -> np.ndarray:
    """Edges of bins up to `end` at least; means are compared over the same bins."""
    if bins is None and references:
        frames = references[0].frames
        step = frames[-1] - frames[-2] if len(frames) > 1 else frames[-1]
        beyond = np.arange(frames[-1] + step, end + step, step)
        return np.concatenate([[0.0], frames, beyond])
    return np.linspace(0, end, (bins or MANY_BINS) + 1)


def _places(edges: np.ndarray, end: float) -> np.ndarray:
    """Where to draw the means of bins: at their right edges, unless a run ended long
    before."""
    left, right = edges[:-1], edges[1:]
    return np.where(end < left + NEARLY * (right - left), end, right)


def _legend(figure: Any, axes: np.ndarray) -> None:
    """One for all panels, below them."""
    found: dict[str, Any] = {}
    for axis in axes.flat:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    figure.legend(
        list(found.values()),
        list(found),
        loc='outside lower center',
        ncols=axes.shape[1],
    )
