"""Row access: finds, reads and overwrites rows by their position in the replay.

What `plan` returns may be copied without a lock, since committed rows never change.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from embodied.core.base import Array, Batch

from ..sampling.index import NONE, Index, join, split
from .allocator import Allocator
from .schema import VERSION
from .segment import LOST, Segment

__all__ = ['ID_BYTES', 'Piece', 'RowAccess', 'is_broken']

ID_BYTES = 20


class Piece(NamedTuple):
    """`steps` rows of one chunk that fill out[row, offset : offset + steps]."""

    ordinal: int
    segment: Segment
    slot: int
    begin: int
    steps: int
    row: int
    offset: int


def is_broken(versions: Array) -> Array:
    """Rows whose latents are lost or were torn in the middle of a write."""
    return (versions == LOST) | (versions & 1).astype(bool)


class RowAccess:
    """Rows of an index, which lie in the segments of an allocator."""

    def __init__(self, index: Index, allocator: Allocator):
        self.index = index
        self.allocator = allocator

    def plan(self, starts: Array, length: int) -> list[Piece]:
        """Where the rows of the sequences from `starts` lie, in order."""
        pieces = []
        ordinals, indices = split(starts)
        table, base = self.index.places, self.index.base
        segments = self.allocator.segments
        places = table[ordinals - base].tolist()
        begins = zip(ordinals.tolist(), indices.tolist(), places, strict=True)
        for row, (ordinal, index, (number, slot, fill, after)) in enumerate(begins):
            offset = 0
            while True:
                count = min(length - offset, fill - index)
                where = segments[number], slot, index, count
                pieces.append(Piece(ordinal, *where, row, offset))
                offset += count
                if offset == length:
                    break
                ordinal, index = after, 0
                number, slot, fill, after = table[ordinal - base].tolist()
        return pieces

    def groups(self, positions: Array) -> Iterable[tuple[Segment, Array, Array, Array]]:
        """Splits positions [n] by segment: segment, which of them, slots, indices."""
        ordinals, indices = split(positions)
        rows = ordinals - self.index.base
        table = self.index.table
        numbers, slots = table['segment'][rows], table['slot'][rows]
        if (numbers == numbers[0]).all():
            segment = self.allocator.segments[int(numbers[0])]
            yield segment, np.arange(len(rows)), slots, indices
            return
        for number in np.unique(numbers):
            which = np.flatnonzero(numbers == number)
            segment = self.allocator.segments[int(number)]
            yield segment, which, slots[which], indices[which]

    def read(self, name: str, positions: Array) -> Array:
        """Values [n, ...] of one column at live positions [n]."""
        column = next(iter(self.allocator.segments.values())).columns[name]
        result = np.empty((len(positions), *column.shape[2:]), column.dtype)
        for segment, which, slots, indices in self.groups(positions):
            result[which] = segment.columns[name][slots, indices]
        return result

    def runs(self, positions: Array) -> list[tuple[Array, Array, int]]:
        """Splits positions [B, T] into runs of consecutive rows of one stream.

        Returns which of them, as an index of [B, T, ...] values, the first row of each
        run, and how many rows each has: whole lines of the block as far as possible,
        single rows else. NONE is left out.
        """
        span = np.arange(positions.shape[1])
        whole = (positions == self.index.shift(positions[:, :1], span)).all(1)
        whole &= positions[:, 0] != NONE
        single = (positions != NONE) & ~whole[:, None]
        parts = [
            (whole, positions[whole, 0], len(span)),
            (single, positions[single], 1),
        ]
        return [part for part in parts if len(part[1])]

    def write(self, firsts: Array, span: int, values: Batch) -> None:
        """Overwrites columns of runs with values [runs, span, ...]."""
        for _, segment, slot, begin, steps, row, offset in self.plan(firsts, span):
            rows = slice(begin, begin + steps)
            for name, value in values.items():
                segment.columns[name][slot, rows] = value[row, offset : offset + steps]

    def write_latents(self, firsts: Array, span: int, values: Batch) -> None:
        """The same with the rows' versions odd while that happens."""
        for _, segment, slot, begin, steps, row, offset in self.plan(firsts, span):
            rows = slice(begin, begin + steps)
            version = segment.columns[VERSION.name][slot, rows]
            before = version & ~np.uint32(1)
            broken = is_broken(version)
            version[:] = before + np.uint32(1)
            if broken.any():  # an update may not bring all of the latents
                for column in segment.spec.schema.columns.values():
                    if column.latent:
                        segment.columns[column.name][slot, rows][broken] = 0
            for name, value in values.items():
                segment.columns[name][slot, rows] = value[row, offset : offset + steps]
            version[:] = before + np.uint32(2)

    def identify(self, pieces: list[Piece], ids: Array) -> None:
        """Writes the step ids [n, length, 20] of sequences: store, ordinal, index."""
        steps = np.array([piece.steps for piece in pieces])
        begins = np.array([piece.begin for piece in pieces])
        ordinals = np.array([piece.ordinal for piece in pieces], '>i8')
        jumps = np.repeat(begins - steps.cumsum() + steps, steps)
        indices = (np.arange(len(jumps)) + jumps).astype('>u4')
        shape = (*ids.shape[:2], -1)
        ids[..., :8] = np.frombuffer(self.allocator.prefix, np.uint8)
        ids[..., 8:16] = np.repeat(ordinals, steps).view(np.uint8).reshape(shape)
        ids[..., 16:] = indices.view(np.uint8).reshape(shape)

    def find(self, ids: Array) -> Array:
        """Positions [...] of step ids [..., 20]; NONE where they are evicted."""
        ids = np.ascontiguousarray(ids)
        own = ids[..., :8] == np.frombuffer(self.allocator.prefix, np.uint8)
        ordinals = np.ascontiguousarray(ids[..., 8:16]).view('>i8')[..., 0]
        indices = np.ascontiguousarray(ids[..., 16:]).view('>u4')[..., 0]
        positions = join(ordinals.astype(np.int64), indices.astype(np.int64))
        return np.where(own.all(-1) & self.index.alive(positions), positions, NONE)
