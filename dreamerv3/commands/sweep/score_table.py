"""Table of a sweep: scores over seeds, the best setting of each task first."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from embodied.core.outside import shown

from .jobs import COLUMNS, describe

__all__ = ['rows_of', 'to_text']

FIGURES = COLUMNS[1:]


def rows_of(entries: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One row per task and setting, from the entries of a summary. Tasks stay in their
    order; settings of one task are sorted by their mean score.

    seeds: how many runs have a score; there are no figures without any.
    """
    groups: dict[tuple, list[Mapping[str, Any]]] = {}
    for entry in entries:
        key = entry['task'], tuple(entry['options'].items())
        groups.setdefault(key, []).append(entry)
    tasks = list(dict.fromkeys(entry['task'] for entry in entries))
    rows = [_row(task, setting, group) for (task, setting), group in groups.items()]
    worst = -np.inf
    order = lambda row: (tasks.index(row['task']), -row.get('mean', worst))
    return sorted(rows, key=order)


def _row(task: str, setting: tuple, group: list[Mapping[str, Any]]) -> dict[str, Any]:
    scores = [entry['score'] for entry in group if entry['score'] is not None]
    row = {'task': task, **describe(setting), 'seeds': len(scores)}
    if not scores:
        return row
    figures = np.mean(scores), np.std(scores), min(scores), max(scores)
    return {**row, **dict(zip(FIGURES[1:], map(float, figures), strict=True))}


def to_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows with aligned columns below a line of names."""
    names = [name for name in rows[0] if name not in FIGURES] + list(FIGURES)
    cells = [names, *([_cell(row.get(name, '')) for name in names] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return '\n'.join(_line(line, names, widths) for line in cells)


def _line(cells: Sequence[str], names: Sequence[str], widths: Sequence[int]) -> str:
    """Numbers of the score are aligned to the right, all else to the left."""
    padded = [
        cell.rjust(width) if name in FIGURES else cell.ljust(width)
        for cell, name, width in zip(cells, names, widths, strict=True)
    ]
    return '  '.join(padded).rstrip()


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f'{value:.4g}'
    return shown(str(value), keep='')
