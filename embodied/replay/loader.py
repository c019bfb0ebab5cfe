"""Loader: rebuilds a store from the segments that an earlier process left behind."""

from typing import Any

import numpy as np

from embodied.core.errors import ReplayError

from .card import was_closed
from .folder import (
    Folder,
    boot_id,
    find_folder,
    list_segments,
    local_path,
    need_descriptors,
)
from .index import NONE
from .schema import ORDER, SERIAL, Schema
from .segment import FREE, BadSegment, Segment
from .store import Store

__all__ = ['attach', 'load_folder', 'load_source', 'recover', 'refuse_difference']


def load_folder(store: Store, folder: Folder, boot: str) -> int:
    """Takes over all rows of a folder, which this process goes on writing: how many
    were lost because their machine went down before they were synced."""
    lost = 0
    allocator = store.allocator
    segments = folder.open_segments()
    clean = folder.card.clean
    if not clean and any(_booted_since(segment, boot) for segment in segments):
        folder.note_loss()
    allocator.prefix = folder.card.prefix
    for segment in segments:
        lost += recover(segment, boot, clean)
        _fetch_numbers(segment)
        segment.dirty = bool(
            (segment.table['durable'] < segment.table['committed']).any()
        )
        _share_schema(store, segment, folder.path)
        allocator.segments[segment.spec.number] = segment
    # After that of all segments: their boot tells from now on what can be trusted.
    folder.note_use()
    if segments:
        allocator.chunksize = segments[0].spec.chunksize
        allocator.prepare(segments[0].spec.schema)
    allocator.next_number = folder.next_number()
    records = [
        (segment.table[slot], segment.spec.number, slot)
        for segment in segments
        for slot in np.flatnonzero(segment.table['ordinal'] != FREE).tolist()
    ]
    records.sort(key=lambda record: record[0]['ordinal'])
    for record, number, slot in records:
        ordinal, stream = int(record['ordinal']), int(record['stream'])
        if record['first'] < record['committed']:
            prev = _complete_before(store, int(record['prev']))
            _enter(store, ordinal, stream, prev, number, slot)
            _continue_stream(store, ordinal, stream)
        if record['committed']:
            _read_counters(store, stream, allocator.segments[number], slot)
        store.next_ordinal = ordinal + 1
    _drop_empty(store)
    store.index.find_stops()
    return lost


def load_source(store: Store, path: Any) -> None:
    """Adds the rows of another run's folder before our own; nothing is written there.

    Its files are mapped privately, so updates of its latents stay in this process.
    """
    home = find_folder(local_path(path))
    paths = list_segments(home)
    if not paths:
        raise ReplayError(f'replay.load_from={home} holds no replay segments.')
    need_descriptors(len(paths))
    segments = [_open_source(p) for p in paths]
    for segment in segments:
        recover(segment, boot_id(), was_closed(home))
    attach(store, segments, home)


def attach(store: Store, segments: list[Segment], home: Any) -> None:
    """Enters privately mapped segments of another store.

    Chunks get negative ordinals and orders: they are older than everything of ours.
    """
    for segment in segments:
        _fetch_numbers(segment)
    records = [
        (record, segment, slot)
        for segment in segments
        for slot, record in enumerate(segment.table)
        if record['ordinal'] != FREE and record['first'] < record['committed']
    ]
    records.sort(key=lambda entry: entry[0]['ordinal'])
    names = {int(r['ordinal']): i - len(records) for i, (r, _, _) in enumerate(records)}
    newest = max((_last(s, slot, ORDER.name) for _, s, slot in records), default=0)
    for i, segment in enumerate(segments):
        segment.columns[ORDER.name][:] -= newest + 1
        _share_schema(store, segment, home)
        store.allocator.segments[-1 - i] = segment
    numbers = {id(segment): -1 - i for i, segment in enumerate(segments)}
    for record, segment, slot in records:
        prev = _complete_before(store, names.get(int(record['prev']), NONE))
        ordinal = names[int(record['ordinal'])]
        _enter(store, ordinal, int(record['stream']), prev, numbers[id(segment)], slot)
    store.index.find_stops()


def recover(segment: Segment, boot: str, clean: bool) -> int:
    """Trusts what was synced only, if the machine went down since it was written: how
    many rows are lost.

    clean: whether everything was on the disk when the last writer ended.
    """
    lost = 0
    if _booted_since(segment, boot) and not clean:
        table = segment.table
        unsynced = table['committed'] > table['durable']
        lost = int((table['committed'] - table['durable'])[unsynced].sum())
        table['committed'] = np.minimum(table['committed'], table['durable'])
        table['first'] = np.minimum(table['first'], table['committed'])
        segment.lose_latents()
    segment.header['boot'] = boot.encode()
    return lost


def _fetch_numbers(segment: Segment) -> None:
    """Lets the disk read the columns that loading looks at, of all chunks at once."""
    names = [SERIAL.name, ORDER.name]
    for slot in np.flatnonzero(segment.table['committed']).tolist():
        segment.fetch(names, slot, 0, int(segment.table['committed'][slot]))


def _booted_since(segment: Segment, boot: str) -> bool:
    return segment.header[0]['boot'].decode() != boot


def _open_source(path: Any) -> Segment:
    try:
        return Segment.open(path, writable=False)
    except BadSegment as error:
        raise ReplayError(
            f'replay.load_from: {path} cannot be read: {error}. See `dreamer replay '
            f'check`.'
        ) from error


def _share_schema(store: Store, segment: Segment, home: Any) -> None:
    allocator = store.allocator
    if allocator.schema is None:
        allocator.prepare(segment.spec.schema)
    assert allocator.schema is not None
    refuse_difference(segment.spec.schema, allocator.schema, home)
    allocator.widest = max(allocator.widest, segment.spec.chunksize)


def refuse_difference(old: Schema, new: Schema, home: Any) -> None:
    """Raises, with a readable difference, unless both schemas are equal."""
    lines = old.difference(new)
    if lines:
        raise ReplayError(
            f'The replay in {home} holds other keys than this run:\n  '
            + '\n  '.join(lines)
            + '\nUse another logdir or replay.dir, or the settings of that run.'
        )


def _complete_before(store: Store, prev: int) -> int:
    """The predecessor if its rows are all there, else NONE: the stream has a gap."""
    row = prev - store.index.base
    if prev == NONE or not 0 <= row < store.index.count:
        return NONE
    record = store.index.table[row]
    if not record['live']:
        return NONE
    size = store.allocator.segments[int(record['segment'])].spec.chunksize
    return prev if record['fill'] == size else NONE


def _enter(
    store: Store, ordinal: int, stream: int, prev: int, number: int, slot: int
) -> None:
    segment = store.allocator.segments[number]
    record = segment.table[slot]
    segment.live += 1
    store.index.add(ordinal, stream, prev, number, slot)
    store.enter(ordinal, int(record['first']), int(record['committed']))


def _continue_stream(store: Store, ordinal: int, stream: int) -> None:
    streams, record = store.streams, store.index.table[ordinal - store.index.base]
    slot = streams.slot(stream)
    streams.ordinal[slot] = ordinal
    before = streams.count[slot] if record['prev'] != NONE else 0
    streams.count[slot] = before + record['fill'] - record['first']


def _read_counters(store: Store, stream: int, segment: Segment, slot: int) -> None:
    """Last serial and order; also of rows that are evicted but still in their file."""
    streams = store.streams
    of_stream = streams.slot(stream)
    streams.serial[of_stream] = _last(segment, slot, SERIAL.name)
    store.next_order = max(store.next_order, _last(segment, slot, ORDER.name) + 1)


def _last(segment: Segment, slot: int, name: str) -> int:
    return int(segment.columns[name][slot, int(segment.table['committed'][slot]) - 1])


def _drop_empty(store: Store) -> None:
    """Continues the newest segment if it has room; deletes those without rows."""
    allocator = store.allocator
    for number in sorted(n for n in allocator.segments if n >= 0):
        segment = allocator.segments[number]
        taken = np.flatnonzero(segment.table['ordinal'] != FREE)
        segment.used = int(taken[-1]) + 1 if len(taken) else 0
        if number == max(allocator.segments) and segment.used < segment.spec.chunks:
            allocator.continue_in(number)
        elif not segment.live:
            allocator.delete(number)
