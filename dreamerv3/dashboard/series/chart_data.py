"""Charts: curves of one metric on common places, small enough to be sent."""

import math
from typing import Any, NamedTuple

import numpy as np

from .curves import Span, combine, common_grid, complete, resample

__all__ = ['ChartRequest', 'rounded']

POINTS = 400  # of a curve: about one per two pixels
MOST_BANDS = 12  # curves; the bands of more would hide each other
DIGITS = 6  # of a value that is sent: more than a screen can show
PLACE_DIGITS = 10  # of a step or time


class ChartRequest(NamedTuple):
    """Axis, range and grouping of the curves of any metric.

    axis: the field of a bucket that holds its place.
    """

    axis: str
    span: Span
    groups: list[list[str]]  # ids of runs that become one curve

    def chart(self, ordered: dict[str, np.ndarray]) -> dict[str, Any]:
        """Ordered series of runs, by id, as `x` and curves with a value for each.

        `complete` of a curve is how many of its values are of all its runs.
        """
        ordered = {key: found for key, found in ordered.items() if len(found)}
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
            curves.append({'runs': group, 'complete': complete(found), **columns})
        return {'x': rounded(grid, PLACE_DIGITS), 'curves': curves}


def rounded(values: np.ndarray, digits: int = DIGITS) -> list[float | None]:
    """Numbers with so many digits; None for what is not finite."""
    return [
        float(f'%.{digits}g' % value) if math.isfinite(value) else None
        for value in values.tolist()
    ]
