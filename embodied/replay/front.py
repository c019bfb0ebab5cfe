"""Front of several streams: the chunks they write to, and where their next rows go."""

from typing import NamedTuple

import numpy as np

from embodied.core.base import Array, Batch

from .schema import ORDER, SERIAL
from .segment import Segment

__all__ = ['Front', 'FrontPart', 'as_slice']


class FrontPart(NamedTuple):
    """Streams `which` of the front write to chunks `slots` of one segment."""

    segment: Segment
    which: Array | slice
    slots: Array

    def write(self, rows: Batch, place: tuple[Array, Array], fills: Array) -> None:
        columns = self.segment.columns
        for name, value in rows.items():
            columns[name][place] = value
        # After the data: a row that is torn by a crash does not count.
        self.segment.table['committed'][self.slots] = fills
        self.segment.dirty = True


class Front:
    """Made for one set of streams and good until one of their chunks is full or gone.

    Inserts usually come from the same streams again and again: what can be looked up
    once per chunk is kept here, so that a row costs little more than its copies.

    slots: of the streams. ordinals: of their chunks. next: index of the next row of
    each. room: rows that all of them have left.
    """

    def __init__(
        self,
        workers: list[int],
        slots: Array,
        ordinals: Array,
        fills: Array,
        chunksize: int,
        parts: list[FrontPart],
    ):
        self.workers = workers
        self.slots = slots
        self.ordinals = ordinals
        self.next = fills
        self.room = chunksize - int(fills.max())
        # Streams whose first row in their chunk is still to come: only at the start,
        # since a new chunk makes a new front.
        self.begins = np.flatnonzero(fills == 0).tolist()
        self._parts = parts

    def write(self, steps: Batch, serials: Array, orders: Array) -> Array:
        """Writes and commits a row of each stream; returns their indices."""
        at, after = self.next, self.next + 1
        rows = {SERIAL.name: serials, ORDER.name: orders, **steps}
        if len(self._parts) == 1:
            part = self._parts[0]
            part.write(rows, (part.slots, at), after)
        else:
            for part in self._parts:
                mine = {name: value[part.which] for name, value in rows.items()}
                place = part.slots, at[part.which]
                part.write(mine, place, after[part.which])
        self.next = after
        self.room -= 1
        return at


def as_slice(which: Array) -> Array | slice:
    """The same selection without a copy of what it selects, if there are no gaps."""
    first, last = int(which[0]), int(which[-1])
    return slice(first, last + 1) if last - first + 1 == len(which) else which
