"""Write cursor of several streams: the chunks they write to, and the next rows."""

from typing import NamedTuple

import numpy as np

from embodied.core.base import Array, Batch

from .schema import ORDER, SERIAL
from .segment import Segment

__all__ = ['WriteCursor', 'CursorPart', 'Selection', 'as_slice']


Selection = Array | slice


class CursorPart(NamedTuple):
    """Streams `which` of the cursor write to chunks `slots` of one segment."""

    segment: Segment
    which: Selection
    slots: Selection

    def write(
        self, rows: Batch, place: tuple[Selection, Array | int], fills: Array | int
    ) -> None:
        columns = self.segment.columns
        for name, value in rows.items():
            columns[name][place] = value
        # After the data: a row that is torn by a crash does not count.
        self.segment.table['committed'][self.slots] = fills
        self.segment.dirty = True


class WriteCursor:
    """Made for one set of streams and good until one of their chunks is full or gone.

    Inserts mostly come from the same streams: what can be looked up once per chunk is
    kept here, so that a row costs little more than its copies. Those
    in step, with neighboring chunks, need slices only, which cost half of that.

    slots: of the streams. ordinals: of their chunks, and rows: of these in the index.
    next: index of the next row of each, or of all. room: rows that all have left.
    """

    def __init__(
        self,
        workers: list[int],
        slots: Array,
        ordinals: Array,
        rows: Selection,
        fills: Array,
        chunksize: int,
        parts: list[CursorPart],
    ):
        self.workers = workers
        self.slots = as_slice(slots)
        self.ordinals = ordinals
        self.rows = rows
        self.next: Array | int = fills
        self.room = chunksize - int(fills.max())
        # Streams whose first row in their chunk is still to come: only at the start,
        # since a new chunk makes a new cursor.
        self.begins = np.flatnonzero(fills == 0).tolist()
        if (fills == fills[0]).all():
            self.next = int(fills[0])
            parts = [part._replace(slots=as_slice(part.slots)) for part in parts]
        self._parts = parts

    def write(self, steps: Batch, serials: Array, orders: Array) -> Array | int:
        """Writes and commits a row of each stream; returns their indices, or index."""
        at, after = self.next, self.next + 1
        rows = {SERIAL.name: serials, ORDER.name: orders, **steps}
        if len(self._parts) == 1:
            part = self._parts[0]
            part.write(rows, (part.slots, at), after)
        else:
            for part in self._parts:
                mine = {name: value[part.which] for name, value in rows.items()}
                here = at if isinstance(at, int) else at[part.which]
                part.write(mine, (part.slots, here), here + 1)
        self.next = after
        self.room -= 1
        return at


def as_slice(which: Selection) -> Selection:
    """The same selection without a copy of what it selects, if there are no gaps."""
    if isinstance(which, slice):
        return which
    first, stop = int(which[0]), int(which[0]) + len(which)
    return slice(first, stop) if (which == np.arange(first, stop)).all() else which
