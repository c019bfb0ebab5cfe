"""Column layout of a segment: where columns of one kind lie, chunk after chunk."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from embodied.core.base import Array

from .schema import Column

__all__ = ['ALIGN', 'HUGE', 'PAGE', 'ColumnLayout', 'round_up']

PAGE = 4096
HUGE = 2**21  # bytes of a large page
ALIGN = 64  # bytes; one cache line
# Where columns begin within a page. Buffers that batches are copied to begin near the
# start of one; with nearly the same offset, a processor takes each load for one of the
# stores it has just made and waits, which halves the speed of copies.
OFFSET = 1024


class ColumnLayout:
    """Bytes from `start` to `end`: per chunk, an array [chunksize, ...] per column."""

    def __init__(
        self, columns: Sequence[Column], chunks: int, chunksize: int, start: int
    ):
        self._columns = {column.name: column for column in columns}
        self._shape = chunks, chunksize
        self._offsets, end = {}, OFFSET
        for column in columns:
            self._offsets[column.name] = end
            end += round_up(chunksize * column.nbytes, ALIGN)
        # Chunks that nearly fill large pages get them for themselves.
        unit = HUGE if -end % HUGE < end // 16 else PAGE
        self._stride = round_up(end, unit)
        self.start = round_up(start, unit)
        self.end = self.start + chunks * self._stride

    def __contains__(self, name: str) -> bool:
        return name in self._columns

    def views(self, memory: Any, start: int) -> dict[str, Array]:
        """Columns [chunks, chunksize, ...] in memory that begins with byte `start`."""
        views = {}
        for name, column in self._columns.items():
            inner = np.empty((1, *column.shape), column.dtype).strides
            views[name] = np.ndarray(
                (*self._shape, *column.shape),
                column.dtype,
                memory,
                self.start - start + self._offsets[name],
                (self._stride, *inner),
            )
        return views

    def span(self, name: str, slot: int, begin: int, steps: int) -> tuple[int, int]:
        """First byte and number of bytes, in whole pages, of rows of a column."""
        column = self.start + slot * self._stride + self._offsets[name]
        size = self._columns[name].nbytes
        first = (column + begin * size) // PAGE * PAGE
        return first, column + (begin + steps) * size - first


def round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
