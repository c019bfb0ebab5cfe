"""Text graphics: sparklines, curves and durations for people who look at a terminal."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

__all__ = ['chart', 'duration', 'resample', 'sparkline']

BLOCKS = '▁▂▃▄▅▆▇█'
ASCII_BLOCKS = '_.-=+*#@'


def sparkline(values: Sequence[float], width: int, blocks: str = BLOCKS) -> str:
    """The values as one line of at most `width` characters, lowest to highest."""
    points = resample(values, width)
    if not len(points):
        return ''
    low, high = points.min(), points.max()
    scale = (len(blocks) - 1) / (high - low) if high > low else 0.0
    return ''.join(blocks[round((point - low) * scale)] for point in points)


def chart(values: ArrayLike, height: int, low: float, high: float) -> list[str]:
    """The values as `height` lines of filled columns between `low` and `high`."""
    eighths = (np.asarray(values, np.float64) - low) / (high - low) * height * 8
    eighths = np.clip(np.round(eighths), 0, height * 8).astype(int)
    filled = ' ' + BLOCKS
    lines = []
    for row in reversed(range(height)):
        levels = np.clip(eighths - 8 * row, 0, 8)
        lines.append(''.join(filled[level] for level in levels))
    return lines


def resample(values: Sequence[float], count: int, stretch: bool = False) -> np.ndarray:
    """At most `count` means of neighbors; values that are not finite are left out.

    With `stretch`, fewer values are repeated to make exactly `count` of them.
    """
    points = np.asarray(values, np.float64)
    points = points[np.isfinite(points)]
    if len(points) > count:
        return np.array([part.mean() for part in np.array_split(points, count)])
    if stretch and len(points):
        return points[np.arange(count) * len(points) // count]
    return points


def duration(seconds: float) -> str:
    """0:07, 12:34, 3:21:09 or 5 d 3 h."""
    seconds = int(seconds)
    days, rest = divmod(seconds, 86_400)
    hours, rest = divmod(rest, 3600)
    minutes, rest = divmod(rest, 60)
    if days:
        return f'{days} d {hours} h'
    if hours:
        return f'{hours}:{minutes:02d}:{rest:02d}'
    return f'{minutes}:{rest:02d}'
