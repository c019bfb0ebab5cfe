"""Index of chunks: which rows are there, how streams continue, where items start.

A row has a position, `ordinal << SHIFT | index`: the number of its chunk and its index
therein. Items are implicit: a row starts one if its stream has `length` rows from there
on. Within a chunk these are the rows from `first` up to `stop`.
"""

import numpy as np

from embodied.core.base import Array

__all__ = ['NONE', 'SHIFT', 'Index', 'join', 'split']

SHIFT = 24
NONE = np.iinfo(np.int64).min  # no row, no chunk
_MASK = (1 << SHIFT) - 1

# One type for all fields: aligned, and readable as a plain [n, fields] array.
TABLE = np.dtype(
    [
        ('segment', 'i8'),
        ('slot', 'i8'),
        ('fill', 'i8'),  # rows from here on are not written yet
        ('next', 'i8'),
        ('prev', 'i8'),
        ('stream', 'i8'),
        ('first', 'i8'),  # rows before are evicted
        ('stop', 'i8'),  # rows from here on have too few successors
        ('live', 'i8'),  # 0 or 1
    ]
)
PLACE = 4  # number of leading fields that locate rows
FIELDS = TABLE.itemsize // 8

# An evicted chunk: without rows, neighbors or items.
_EMPTY = np.array((0, 0, 0, NONE, NONE, 0, 0, 0, 0), TABLE)


def split(positions: Array) -> tuple[Array, Array]:
    """Ordinals and indices of positions."""
    return positions >> SHIFT, positions & _MASK


def join(ordinals: Array | int, indices: Array | int) -> Array:
    return (np.asarray(ordinals, np.int64) << SHIFT) | np.asarray(indices, np.int64)


class Index:
    """Table of chunks by ordinal; row `ordinal - base` of `table` describes one."""

    def __init__(self, length: int):
        self.length = length
        self.base = 0
        self.count = 0
        self._dead = 0  # rows of the table before the first live one
        self._table = np.full(64, _EMPTY)
        self._sums: Array | None = None

    @property
    def oldest(self) -> int:
        """Smallest ordinal that may be live; `span` ordinals from here are in use."""
        return self.base + self._dead

    @property
    def span(self) -> int:
        return self.count - self._dead

    @property
    def table(self) -> Array:
        return self._table[: self.count]

    @property
    def places(self) -> Array:
        """[n, 4]: segment, slot, fill and next of each row of the table."""
        return self.table.view(np.int64).reshape(-1, FIELDS)[:, :PLACE]

    def add(
        self, ordinal: int, stream: int, prev: int, segment: int, slot: int
    ) -> None:
        """Enters a chunk. Ordinals only grow; those left out count as evicted."""
        if not self.count:
            self.base = ordinal
        row = ordinal - self.base
        if row >= len(self._table):
            self._make_room(row)
            row = ordinal - self.base
        self._table[row] = (segment, slot, 0, NONE, prev, stream, 0, 0, 1)
        self.count = row + 1
        if prev != NONE:
            self._table['next'][prev - self.base] = ordinal
        self._sums = None

    def remove(self, ordinal: int) -> None:
        """Forgets a chunk; its successor becomes the beginning of a stream.

        One that has a predecessor cuts its stream, and stops must be found again.
        """
        row = ordinal - self.base
        before, after = self._table['prev'][row], self._table['next'][row]
        if after != NONE:
            self._table['prev'][after - self.base] = NONE
        if before != NONE:
            self._table['next'][before - self.base] = NONE
        self._table[row] = _EMPTY
        while self._dead < self.count and not self._table['live'][self._dead]:
            self._dead += 1
        self._sums = None

    def fills(self, ordinals: Array) -> Array:
        """Rows written to each chunk; 0 for NONE."""
        rows = np.where(ordinals == NONE, 0, ordinals - self.base)
        return np.where(ordinals == NONE, 0, self._table['fill'][rows])

    def alive(self, positions: Array) -> Array:
        """Whether rows are written and not evicted."""
        return self._before(positions, 'fill')

    def valid(self, starts: Array) -> Array:
        """Whether rows start an item."""
        return self._before(starts, 'stop')

    def extend(
        self, rows: Array | slice, ordinals: Array, indices: Array | int
    ) -> tuple[Array, Array]:
        """Notes one new row per stream, in chunks that are `rows` of the table.

        Returns the positions of the rows and of the starts that they complete, or NONE.
        """
        table = self._table
        positions = (ordinals << SHIFT) | indices
        table['fill'][rows] = indices + 1
        self._sums = None
        stops = indices + (2 - self.length)
        least, most = _range(stops)
        if least > 0:  # the usual case: all of them start in the same chunk
            table['stop'][rows] = stops
            starts = positions + (1 - self.length)
            gone = table['first'][rows] >= stops
            if gone.any():
                starts[gone] = NONE
            return positions, starts
        if most <= 0:  # or all in the chunk before, if there is one
            before = table['prev'][rows]
            if (before != NONE).all():
                rows = before - self.base
                indices = table['fill'][rows] + stops - 1
                if (indices >= table['first'][rows]).all():
                    table['stop'][rows] = indices + 1
                    return positions, join(before, indices)
        starts = self.shift(positions, 1 - self.length)
        ordinals, indices = split(starts[starts != NONE])
        table['stop'][ordinals - self.base] = indices + 1
        return positions, starts

    def restore(self, ordinal: int, first: int, fill: int) -> None:
        row = ordinal - self.base
        self._table['first'][row] = first
        self._table['fill'][row] = fill
        self._sums = None

    def evict(self, ordinal: int, first: int) -> None:
        self._table['first'][ordinal - self.base] = first
        self._sums = None

    def find_stops(self) -> None:
        """Computes where items start from the lengths of the chains alone."""
        table = self.table
        table['stop'] = 0
        for row in np.flatnonzero(table['live']):
            fill, after = int(table['fill'][row]), table['next'][row]
            ahead = fill
            while after != NONE and ahead < fill + self.length - 1:
                ahead += int(table['fill'][after - self.base])
                after = table['next'][after - self.base]
            table['stop'][row] = max(0, min(fill, ahead - self.length + 1))
        self._sums = None

    def shift(self, positions: Array, steps: Array | int) -> Array:
        """Rows that lie `steps` later in the same stream, or NONE; any shapes."""
        ordinals, indices = split(positions)
        indices = indices + steps
        rows = np.zeros_like(indices)
        rows += np.where(positions == NONE, 0, ordinals - self.base)
        lost = np.zeros(indices.shape, bool)
        lost |= positions == NONE
        outside = ~lost & ((indices < 0) | (indices >= self._table['fill'][rows]))
        if outside.any():
            rows[outside], indices[outside] = self._walk(
                rows[outside], indices[outside]
            )
        lost |= (rows < 0) | (indices < self._table['first'][rows])
        return np.where(lost, NONE, join(rows + self.base, indices))

    def __len__(self) -> int:
        return int(self._cumulative()[-1]) if self.count else 0

    def item(self, ranks: Array) -> Array:
        """Start of the n-th item, counted by chunk and index."""
        sums = self._cumulative()
        rows = np.searchsorted(sums, ranks, 'right')
        below = np.where(rows > 0, sums[rows - 1], 0)
        return join(rows + self.base, self._table['first'][rows] + ranks - below)

    def _walk(self, rows: Array, indices: Array) -> tuple[Array, Array]:
        """Moves from chunk to chunk until indices [n] lie within; row -1 for none."""
        prev, after, fill = (self._table[key] for key in ('prev', 'next', 'fill'))
        while (low := (rows >= 0) & (indices < 0)).any():
            there = prev[rows[low]]
            rows[low] = np.where(there == NONE, -1, there - self.base)
            indices[low] += fill[rows[low]]
        while (high := (rows >= 0) & (indices >= fill[rows])).any():
            indices[high] -= fill[rows[high]]
            there = after[rows[high]]
            rows[high] = np.where(there == NONE, -1, there - self.base)
        return rows, indices

    def _before(self, positions: Array, end: str) -> Array:
        ordinals, indices = split(positions)
        rows = ordinals - self.base
        found = (rows >= 0) & (rows < self.count)
        rows = np.where(found, rows, 0)
        table = self._table
        return found & (table['first'][rows] <= indices) & (indices < table[end][rows])

    def _cumulative(self) -> Array:
        if self._sums is None:
            table = self.table
            self._sums = np.maximum(table['stop'] - table['first'], 0).cumsum()
        return self._sums

    def _make_room(self, row: int) -> None:
        """Drops dead rows at the front; doubles the table if that is not enough."""
        dead = self._dead
        needed = row - dead + 1
        size = len(self._table)
        while size < 2 * needed:
            size *= 2
        table = np.full(size, _EMPTY)
        table[: self.count - dead] = self._table[dead : self.count]
        self._table = table
        self.base += dead
        self.count -= dead
        self._dead = 0


def _range(values: Array | int) -> tuple[int, int]:
    if isinstance(values, int):
        return values, values
    return int(values.min()), int(values.max())
