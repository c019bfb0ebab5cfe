"""Faults in the bookkeeping of segments: chunks and rows that must not be served."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from embodied.core.base import Array

from ..storage import checksums
from ..storage.schema import ORDER, SERIAL
from ..storage.segment import FREE, RETIRED, Segment
from .damage import Damage

__all__ = ['Fault', 'correct', 'find_faults', 'find_gaps', 'forget_gaps']


class Fault(NamedTuple):
    """damage: what is wrong. fields: what the chunk's record should say instead."""

    damage: Damage
    segment: Segment
    slot: int
    fields: dict[str, int]


def find_faults(segments: Sequence[Segment], end: int | None = None) -> list[Fault]:
    """Faults of all chunks that are in use; the first of two with one number is right.

    end: orders of rows are below, if that is known.
    """
    found, seen = [], set()
    for segment in segments:
        for slot in np.flatnonzero(segment.usable()).tolist():
            ordinal = int(segment.table['ordinal'][slot])
            if not segment.record_is_whole(slot):
                reason = 'the record of the chunk fails its checksum; left out'
                found.append(_left_out(segment, slot, reason))
            elif ordinal in seen:
                reason = f'its number {ordinal} is used twice; left out'
                found.append(_left_out(segment, slot, reason))
            else:
                seen.add(ordinal)
                found += _check_counters(segment, slot, end)
    return found


def correct(faults: Iterable[Fault]) -> list[Damage]:
    """Changes the records; privately, where the file is read-only."""
    damages = []
    for damage, segment, slot, fields in faults:
        for name, value in fields.items():
            segment.table[name][slot] = value
        damages.append(damage)
    return damages


def find_gaps(segments: Sequence[Segment]) -> list[Damage]:
    """Chunks with rows whose successor is missing.

    Streams are evicted from their beginning, so the successor was taken away. Chunks
    that are evicted themselves tell nothing: their successors may be evicted too.
    """
    return [
        Damage(_path(segment), 'the chunk that follows it is missing', None, slot)
        for segment, slot in _gaps(segments)
    ]


def forget_gaps(segments: Sequence[Segment]) -> None:
    """Ends streams at chunks whose successor is missing."""
    for segment, slot in _gaps(segments):
        segment.table['next'][slot] = FREE


def _gaps(segments: Sequence[Segment]) -> list[tuple[Segment, int]]:
    there = {FREE, *(int(n) for s in segments for n in s.table['ordinal'])}
    return [
        (segment, slot)
        for segment in segments
        for slot in np.flatnonzero(segment.usable()).tolist()
        if segment.rows_of(slot) and int(segment.table['next'][slot]) not in there
    ]


def _check_counters(segment: Segment, slot: int, end: int | None) -> list[Fault]:
    # A copy: a run may be writing there.
    size, record = segment.spec.chunksize, segment.table[slot].copy()
    first, committed = int(record['first']), int(record['committed'])
    sealed = checksums.is_sealed(segment, slot)
    if sealed and not checksums.numbers_match(segment, slot):
        return [
            _left_out(segment, slot, 'its row numbers fail their checksum; left out')
        ]
    whole = size if sealed else _whole_rows(segment, slot, min(committed, size), end)
    faults = []

    def add(reason: str, steps: int, **fields: int) -> None:
        damage = Damage(_path(segment), reason, steps, slot)
        faults.append(Fault(damage, segment, slot, fields))

    if committed != whole:
        reason = f'{committed} rows are claimed and {whole} are there'
        add(reason, max(0, min(committed, size) - whole), committed=whole)
    if first > whole:
        if committed == whole:
            add(f'{first} rows are evicted of {whole}; none is', 0)
        faults[-1].fields['first'] = 0
    if record['durable'] > whole:
        if committed == whole:
            add(f'{record["durable"]} rows are durable of {whole}', 0)
        faults[-1].fields['durable'] = whole
    return faults


def _whole_rows(segment: Segment, slot: int, rows: int, end: int | None) -> int:
    """How many leading rows have plausible numbers."""
    serials, orders = (segment.columns[c.name][slot, :rows] for c in (SERIAL, ORDER))
    good = _grow(serials) & _grow(orders)
    if end is not None:
        good &= orders < end
    return rows if good.all() else int(good.argmin())


def _grow(numbers: Array) -> Array:
    return np.diff(numbers, prepend=-1) > 0


def _left_out(segment: Segment, slot: int, reason: str) -> Fault:
    damage = Damage(_path(segment), reason, segment.rows_of(slot) or None, slot)
    return Fault(damage, segment, slot, {'retired': RETIRED})


def _path(segment: Segment) -> Path:
    assert segment.path is not None
    return segment.path
