"""Points at the end of a file of a run, every one of them, without reading the rest."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

from ..runs.run_files import open_plain
from . import buckets
from .records import FILES, LONGEST_LINE, Columns

__all__ = ['last_points']

BLOCK = 1 << 18  # bytes that are read at once, from the end
MOST_BYTES = 64 << 20  # at the end of a file, of one whose steps never go back


def last_points(path: Path, metric: str, share: float) -> np.ndarray:
    """The buckets of one point each in the last `share` of the steps of a metric.

    Without those that the run has repeated after a crash.
    """
    pieces: list[np.ndarray] = []
    with open_plain(path) as file:
        for lines in _lines_from_the_end(file) if file else ():
            columns = Columns()
            columns.take(lines, FILES[path.name])
            pieces += [points for _, points in columns.series([metric])]
            # What is further up and was not repeated has even lower steps.
            if pieces and pieces[-1]['step'].min() < _begin(pieces[0], share):
                break
    if not pieces:
        return buckets.EMPTY.buckets
    points = buckets.forward(np.concatenate(pieces[::-1]))
    return points[points['step'] >= _begin(points, share)]


def _begin(points: np.ndarray, share: float) -> float:
    return (1 - share) * points['step'][-1]


def _lines_from_the_end(file: BinaryIO) -> Iterator[list[bytes]]:
    """The whole lines of each block, in order; the blocks in the opposite order."""
    end = os.fstat(file.fileno()).st_size
    last = max(0, end - MOST_BYTES)
    rest = b''  # the end of a line that begins in a block further up
    while end > last:
        start = max(last, end - BLOCK)
        data = os.pread(file.fileno(), end - start, start) + rest
        end = start
        cut = data.find(b'\n') + 1 if start else 0
        if start and not cut:
            rest = data if len(data) <= LONGEST_LINE else b'\n'
            continue
        rest = data[:cut]
        yield data[cut:].split(b'\n')[:-1]
