"""Store of steps: owns segments, streams and the index; appends and evicts rows.

Not safe for several threads by itself: `Replay` holds a lock around every call.
"""

import heapq
from typing import NamedTuple

import numpy as np

from embodied.core.base import Array, Batch
from embodied.core.errors import ReplayError

from ..sampling.index import NONE, Index, join
from .allocator import Allocator
from .row_access import RowAccess
from .schema import ORDER, Schema
from .segment import Segment
from .streams import StreamTable
from .write_cursor import CursorPart, WriteCursor, as_slice

__all__ = ['Appended', 'Evicted', 'Store']

# Evicting this share of the capacity at a time keeps its cost per step negligible.
EVICT_SHARE = 1024


Place = tuple[Segment, int]  # and slot


class Evicted(NamedTuple):
    """Rows [start, stop) of a chunk are gone."""

    ordinal: int
    start: int
    stop: int


class Appended(NamedTuple):
    """What an insert did: per new row its position, start and number in its stream."""

    positions: Array
    starts: Array  # of the items that the rows complete, or NONE
    counts: Array
    evicted: list[Evicted]


class Store(RowAccess):
    """Rows of many streams, bounded by steps and bytes: appends and evicts them."""

    def __init__(self, length: int, capacity: int | None, allocator: Allocator):
        super().__init__(Index(length), allocator)
        self.capacity = capacity
        self.streams = StreamTable()
        self.rows = 0  # live rows
        self.next_order = 0
        self.next_ordinal = 0
        self.filled: list[Place] = []  # chunks in files, for the owner to empty
        self._ages: list[tuple[int, int]] = []  # heap of (order of first row, ordinal)
        self._cursor: WriteCursor | None = None  # of the last insert, while it is good
        self._quantum = max(1, (capacity or 0) // EVICT_SHARE)

    @property
    def schema(self) -> Schema | None:
        return self.allocator.schema

    def append(
        self, steps: Batch, workers: list[int], serials: Array | None
    ) -> Appended:
        """Adds row i of [N, ...] to the stream of workers[i]; workers are distinct.

        Rows whose serial number is not above the last of their stream are already
        there and skipped.
        """
        cursor = self._find_cursor(workers)
        last = self.streams.serial[cursor.slots]
        if serials is None:
            serials = last + 1
        elif not (serials > last).all():
            fresh = np.flatnonzero(serials > last)
            if not len(fresh):
                return Appended(fresh, fresh, fresh, [])
            steps = {key: value[fresh] for key, value in steps.items()}
            workers, serials = [workers[i] for i in fresh], serials[fresh]
            cursor = self._find_cursor(workers)
        evicted: list[Evicted] = []
        if not cursor.room:
            evicted = self._make_chunks(self.streams.slots(workers))
            cursor = self._find_cursor(workers)
        orders = np.arange(self.next_order, self.next_order + len(workers))
        indices = cursor.write(steps, serials, orders)
        positions, starts = self.index.extend(cursor.rows, cursor.ordinals, indices)
        counts = self._note(cursor, serials)
        return Appended(positions, starts, counts, evicted + self.trim())

    def shrink(self, max_bytes: float) -> list[Evicted]:
        """Evicts the oldest segments until the others take at most `max_bytes`."""
        evicted: list[Evicted] = []
        while self.allocator.nbytes > max_bytes:
            evicted += self._evict_segment()
        return evicted

    def tail(self, slot: int) -> int:
        """Position of the newest row of the stream in a slot, or NONE."""
        ordinal = self.streams.ordinal[slot]
        if ordinal == NONE or not self.index.fills(ordinal[None])[0]:
            return NONE
        return int(join(ordinal, self.index.fills(ordinal[None])[0] - 1))

    def rows_since(self, slot: int, order: int) -> int:
        """How many rows of the stream in a slot were added at `order` or later."""
        ordinal, count = int(self.streams.ordinal[slot]), 0
        while ordinal != NONE:
            record = self.index.table[ordinal - self.index.base]
            segment = self.allocator.segments[int(record['segment'])]
            rows = slice(int(record['first']), int(record['fill']))
            orders = segment.columns[ORDER.name][record['slot'], rows]
            new = len(orders) - int(np.searchsorted(orders, order))
            count += new
            ordinal = int(record['prev']) if new == len(orders) else NONE
        return count

    def oldest(self) -> int:
        """Order of the oldest row that is still there."""
        return self._ages[0][0] if self._ages else self.next_order

    def enter(self, ordinal: int, first: int, fill: int) -> None:
        """Takes over the rows of a chunk that exists already, while loading."""
        self.index.restore(ordinal, first, fill)
        self.rows += fill - first
        if fill > first:
            self._push(ordinal)

    def drop_dead(self, ordinal: int) -> None:
        """Forgets a chunk without rows and frees its segment if it was the last."""
        self.allocator.release(self._leave(ordinal))

    def exclude(self, segment: Segment, slot: int) -> int:
        """Forgets a chunk in the middle of its stream, which is cut there; the segment
        stays. Returns how many rows are gone: none if they were evicted before."""
        numbers = [n for n, s in self.allocator.segments.items() if s is segment]
        table = self.index.table
        mine = (table['live'] > 0) & (table['slot'] == slot)
        found = np.flatnonzero(mine & np.isin(table['segment'], numbers)).tolist()
        if not found:
            return 0
        ordinal = found[0] + self.index.base
        gone = int(table['fill'][found[0]] - table['first'][found[0]])
        self._ages = [age for age in self._ages if age[1] != ordinal]
        heapq.heapify(self._ages)
        self.rows -= gone
        segment.live -= 1
        before = int(table['prev'][found[0]])
        if before != NONE:
            self._follow(before, NONE)
        self._leave(ordinal)
        self.index.find_stops()
        return gone

    def cut_streams(self) -> None:
        """Lets all streams go on in new chunks, which do not follow those before."""
        self.streams.ordinal[:] = NONE
        self._cursor = None

    def tails(self) -> list[Place]:
        """Chunks in files that streams have filled last."""
        ordinals = self.streams.ordinal[self.streams.ordinal != NONE]
        records = self.index.table[ordinals - self.index.base]
        found = [(self.allocator.segments[int(r['segment'])], r) for r in records]
        return [(s, int(r['slot'])) for s, r in found if s.path is not None]

    def trim(self) -> list[Evicted]:
        """Evicts what exceeds the capacity."""
        if not self.capacity or self.rows <= self.capacity:
            return []
        return self._evict_rows(self.rows - self.capacity)

    def _make_chunks(self, slots: Array) -> list[Evicted]:
        evicted: list[Evicted] = []
        # Room for one stream may come from evicting the chunk of another.
        for _ in range(len(slots) + 1):
            ordinals = self.streams.ordinal[slots]
            fills = self.index.fills(ordinals)
            full = (ordinals == NONE) | (fills == self.allocator.chunksize)
            if not full.any():
                return evicted
            for slot in slots[full].tolist():
                while self.allocator.needs_eviction():
                    evicted += self._evict_segment()
                self._open_chunk(slot)
        raise ReplayError(
            f'replay.max_gb is too small: {len(slots)} streams write at once, but it '
            f'does not hold one chunk for each. Raise it or lower replay.chunksize.'
        )

    def _open_chunk(self, slot: int) -> None:
        prev = int(self.streams.ordinal[slot])
        stream = self.streams.workers[slot]
        self._note_order()
        ordinal = self.next_ordinal
        number, place = self.allocator.take(ordinal, stream, prev)
        self.next_ordinal += 1
        self._cursor = None
        self.index.add(ordinal, stream, prev, number, place)
        if prev != NONE:
            before, at = self._follow(prev, ordinal)
            if before.path is not None:
                self.filled.append((before, at))
        self.streams.ordinal[slot] = ordinal

    def _follow(self, ordinal: int, after: int) -> Place:
        """Notes in the record of a chunk which one follows it."""
        record = self.index.table[ordinal - self.index.base]
        segment = self.allocator.segments[int(record['segment'])]
        segment.table['next'][record['slot']] = after
        return segment, int(record['slot'])

    def _leave(self, ordinal: int) -> int:
        """Takes a chunk out of its stream and the index; returns its segment."""
        self._cursor = None
        self._note_order()
        row = ordinal - self.index.base
        self.streams.leave(int(self.index.table['stream'][row]), ordinal)
        number = int(self.index.table['segment'][row])
        self.index.remove(ordinal)
        return number

    def _note_order(self) -> None:
        """The inventory, which may change next, says how far orders go."""
        if self.allocator.inventory is not None:
            self.allocator.inventory.next_order = self.next_order

    def _find_cursor(self, workers: list[int]) -> WriteCursor:
        """The cursor of these streams; without room where one has no chunk to fill."""
        if self._cursor is not None and self._cursor.workers == workers:
            return self._cursor
        slots = self.streams.slots(workers)
        ordinals = self.streams.ordinal[slots]
        size = self.allocator.chunksize
        if (ordinals == NONE).any():
            full = np.full(len(slots), size)
            return WriteCursor(workers, slots, ordinals, slots, full, size, [])
        fills = self.index.fills(ordinals)
        parts = [
            CursorPart(segment, as_slice(which), at)
            for segment, which, at, _ in self.groups(join(ordinals, fills))
        ]
        rows = as_slice(ordinals - self.index.base)
        self._cursor = WriteCursor(workers, slots, ordinals, rows, fills, size, parts)
        return self._cursor

    def _note(self, cursor: WriteCursor, serials: Array) -> Array:
        """Counts the rows that were written; returns how many each stream has had."""
        self.streams.serial[cursor.slots] = serials
        counts = self.streams.count[cursor.slots] + 1
        self.streams.count[cursor.slots] = counts
        for i in cursor.begins:
            heapq.heappush(self._ages, (self.next_order + i, int(cursor.ordinals[i])))
        cursor.begins = []
        self.next_order += len(serials)
        self.rows += len(serials)
        return counts

    def _evict_rows(self, count: int) -> list[Evicted]:
        evicted = []
        while count > 0:
            ordinal = self._ages[0][1]
            evicted.append(self._evict_from(ordinal, self._quantum))
            count -= evicted[-1].stop - evicted[-1].start
        return evicted

    def _evict_from(self, ordinal: int, count: int) -> Evicted:
        """Evicts up to `count` rows of the chunk on top of the heap."""
        heapq.heappop(self._ages)
        row = ordinal - self.index.base
        record = self.index.table[row]
        first, fill = int(record['first']), int(record['fill'])
        stop = min(first + count, fill)
        segment = self.allocator.segments[int(record['segment'])]
        segment.table['first'][record['slot']] = stop
        self.index.evict(ordinal, stop)
        self.rows -= stop - first
        if stop == fill:
            self.drop_dead(ordinal)
        else:
            self._push(ordinal)
        return Evicted(ordinal, first, stop)

    def _evict_segment(self) -> list[Evicted]:
        """Evicts every chunk of the oldest segment."""
        number = self.allocator.oldest()
        table = self.index.table
        mine = np.flatnonzero((table['live'] > 0) & (table['segment'] == number))
        ordinals = set((mine + self.index.base).tolist())
        self._ages = [age for age in self._ages if age[1] not in ordinals]
        evicted = []
        for ordinal in sorted(ordinals):
            record = self.index.table[ordinal - self.index.base]
            first, fill = int(record['first']), int(record['fill'])
            self.index.evict(ordinal, fill)
            self.rows -= fill - first
            self.drop_dead(ordinal)
            evicted.append(Evicted(ordinal, first, fill))
        heapq.heapify(self._ages)
        if number in self.allocator.segments:
            self.allocator.delete(number)
        return evicted

    def _push(self, ordinal: int) -> None:
        record = self.index.table[ordinal - self.index.base]
        segment = self.allocator.segments[int(record['segment'])]
        order = segment.columns[ORDER.name][record['slot'], record['first']]
        heapq.heappush(self._ages, (int(order), ordinal))
