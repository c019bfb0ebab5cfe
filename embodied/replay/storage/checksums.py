"""Checksums of full chunks: computed once, kept in the chunk's record, verified later.

Latents, priorities and other columns that change in place are not covered. Numbers of
rows have a checksum of their own, so that loading need not read everything.
"""

import zlib

import numpy as np

from embodied.core.base import Array

from .schema import ORDER, SERIAL
from .segment import Segment

__all__ = ['can_seal', 'is_full', 'is_sealed', 'numbers_match', 'seal', 'values_match']


def is_full(segment: Segment, slot: int) -> bool:
    return bool(segment.table['committed'][slot] == segment.spec.chunksize)


def is_sealed(segment: Segment, slot: int) -> bool:
    """Whether a chunk has checksums. Torn or damaged ones count as none: they tell
    nothing about the rows."""
    record = segment.table[slot]
    return bool(record['seal'] and record['seal'] == _seal(record))


def can_seal(segment: Segment, slot: int) -> bool:
    """Whether checksums of this chunk would reach a file."""
    return segment.writable and is_full(segment, slot)


def seal(segment: Segment, slot: int) -> None:
    """Computes and keeps the checksums of a full chunk."""
    record = segment.table[slot : slot + 1]
    # The seal comes last and goes first: a crash in between leaves no checksums.
    record['seal'] = 0
    record['numbers'] = _numbers(segment, slot)
    record['values'] = _values(segment, slot)
    record['seal'] = _seal(record[0])


def numbers_match(segment: Segment, slot: int) -> bool:
    return bool(segment.table['numbers'][slot] == _numbers(segment, slot))


def values_match(segment: Segment, slot: int) -> bool:
    return bool(segment.table['values'][slot] == _values(segment, slot))


def _seal(record: Array) -> int:
    covered = [record['ordinal'], record['numbers'], record['values']]
    return zlib.crc32(np.array(covered, np.int64).tobytes()) or 1


def _numbers(segment: Segment, slot: int) -> int:
    serials, orders = (segment.columns[c.name][slot] for c in (SERIAL, ORDER))
    return zlib.crc32(orders + segment.shift, zlib.crc32(serials))


def _values(segment: Segment, slot: int) -> int:
    result = 0
    for column in segment.spec.schema.main:
        if column not in (SERIAL, ORDER):
            # Releases the interpreter while it runs, as all of zlib.
            result = zlib.crc32(segment.columns[column.name][slot], result)
    return result
