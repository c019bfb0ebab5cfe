"""Tables of final scores per task and experiment, as CSV or Markdown."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from embodied.core.errors import ConfigError
from embodied.core.outside import shown

from ..series.reference import Reference
from .experiments import Experiment

__all__ = ['render', 'rows', 'write']

COLUMNS = (
    'task', 'experiment', 'runs', 'seeds', 'end', 'mean', 'median', 'min', 'max'
)  # fmt: skip
DIGITS = 4
RENDERERS = ('.csv', '.md')


def rows(
    experiments: Sequence[Experiment], references: Sequence[Reference]
) -> list[list[str]]:
    """Header and one row per experiment, over the final values of its runs.

    `end` is where the longest run ends, on the axis of the figure.

    The reference is its mean at as many frames.
    """
    tasks = {experiment.task for experiment in experiments}
    references = [curve for curve in references if any(map(curve.is_of, tasks))]
    suites = list(dict.fromkeys(curve.suite for curve in references))
    table = [[*COLUMNS, *(f'reference ({suite})' for suite in suites)]]
    for experiment in experiments:
        finals = np.array([run.final() for run in experiment.runs])
        known = {c.suite: c for c in references if c.is_of(experiment.task)}
        numbers = [finals.mean(), np.median(finals), finals.min(), finals.max()]
        for suite in suites:
            curve = known.get(suite)
            numbers.append(
                np.interp(experiment.end, curve.frames, curve.mean, np.nan, np.nan)
                if curve
                else np.nan
            )
        table.append(
            [
                experiment.task,
                experiment.label,
                str(len(experiment.runs)),
                str(experiment.seeds),
                f'{experiment.end:.{DIGITS}g}',
                *('' if np.isnan(n) else f'{n:.{DIGITS}g}' for n in numbers),
            ]
        )
    return table


def render(table: Sequence[Sequence[str]], suffix: str) -> str:
    """The table as text in the format of a file's ending."""
    if suffix == '.csv':
        text = io.StringIO()
        csv.writer(text, lineterminator='\n').writerows(table)
        return text.getvalue()
    # Names come from files of runs, and the table is printed, too.
    cells = [[shown(cell, '').replace('|', '\\|') for cell in row] for row in table]
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    lines = [
        '| ' + ' | '.join(c.ljust(w) for c, w in zip(row, widths, strict=True)) + ' |'
        for row in cells
    ]
    rule = '|' + '|'.join('-' * (width + 2) for width in widths) + '|'
    return '\n'.join([lines[0], rule, *lines[1:]]) + '\n'


def write(path: Path, table: Sequence[Sequence[str]]) -> None:
    """Writes the table; the ending of the file's name chooses its format."""
    if path.suffix.lower() not in RENDERERS:
        raise ConfigError(
            f"Cannot write '{path}': its name must end in {' or '.join(RENDERERS)}."
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(render(table, path.suffix.lower()))
