"""Charts: curves of one metric on common places, small enough to be sent."""

import math
from typing import Any, NamedTuple

import numpy as np

from .curves import Span, combine, common_grid, over, resample

__all__ = ['Asked', 'rounded']

POINTS = 400  # of a curve: about one per two pixels
MOST_BANDS = 12  # curves; the bands of more would hide each other
DIGITS = 6  # of a value that is sent: more than a screen can show
PLACE_DIGITS = 10  # of a step or time


class Asked(NamedTuple):
    """How curves are to be drawn, whichever metric it is."""

    axis: str
    span: Span
    groups: list[list[str]]  # ids of runs that become one curve

    def chart(self, series: dict[str, np.ndarray]) -> dict[str, Any]:
        """The series of runs, by id, as `x` and curves with a value for each of it."""
        ordered = {key: over(data, self.axis) for key, data in series.items()}
        if not ordered:
            return {'x': [], 'curves': []}
        grid = common_grid(list(ordered.values()), self.axis, self.span, POINTS)
        if not len(grid):
            return {'x': [], 'curves': []}
        members = [[key for key in group if key in ordered] for group in self.groups]
        members = [group for group in members if group]
        keys = ('mean', 'low', 'high') if len(members) <= MOST_BANDS else ('mean',)
        curves = []
        for group in members:
            found = [resample(ordered[key], self.axis, grid) for key in group]
            values = combine(found) if len(found) > 1 else found[0]
            columns = {k: rounded(v) for k, v in zip(keys, values, strict=False)}
            curves.append({'runs': group, **columns})
        return {'x': rounded(grid, PLACE_DIGITS), 'curves': curves}


def rounded(values: np.ndarray, digits: int = DIGITS) -> list[float | None]:
    """Numbers with so many digits; None for what is not finite."""
    return [
        float(f'%.{digits}g' % value) if math.isfinite(value) else None
        for value in values.tolist()
    ]
