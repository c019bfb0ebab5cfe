"""Loader: rebuilds a store from the segments that an earlier process left behind."""

from typing import Any

import numpy as np

from embodied.core.errors import ReplayError

from ..sampling.index import NONE
from ..storage.schema import ORDER, SERIAL, Schema
from ..storage.segment import BadSegment, Segment
from ..storage.store import Store
from .chunk_faults import correct, find_faults, find_gaps, forget_gaps
from .damage import Damage
from .folder import (
    Folder,
    boot_id,
    find_folder,
    list_segments,
    local_path,
    need_descriptors,
    quarantine,
)
from .metadata import was_closed

__all__ = [
    'attach',
    'leave_out',
    'load_folder',
    'load_source',
    'recover',
    'refuse_difference',
]


def load_folder(store: Store, folder: Folder, boot: str) -> int:
    """Enters all rows of a folder, which this process continues to write.

    Returns how many rows are lost: not synced when the machine went down.
    """
    allocator = store.allocator
    segments = folder.open_segments()
    lost = _make_sound(segments, folder, boot)
    allocator.prefix = folder.metadata.prefix
    for segment in segments:
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
    allocator.next_number = folder.inventory.next_number
    allocator.inventory = folder.inventory
    _enter_all(store, segments)
    _drop_empty(store, folder)
    forget_gaps([s for n, s in allocator.segments.items() if n >= 0])
    store.index.find_stops()
    if folder.has_gaps:
        store.cut_streams()
    folder.inventory.count(allocator.segments)
    folder.inventory.next_order = store.next_order
    if segments or folder.before:
        folder.inventory.write()
    return lost


def _make_sound(segments: list[Segment], folder: Folder, boot: str) -> int:
    """Leaves out damaged rows and rows that were not synced; returns how many the
    latter are."""
    clean = folder.metadata.clean
    booted = not clean and any(_booted_since(segment, boot) for segment in segments)
    if booted:
        folder.note_loss()
    lost = sum(recover(segment, boot, clean) for segment in segments)
    for segment in segments:
        _fetch_numbers(segment)
    end = _end_of_orders(folder, segments)
    faults = find_faults(_listed_first(segments, folder), end)
    damages = [fault.damage for fault in faults]
    if not booted and not folder.has_gaps and not any(x.loses_steps for x in damages):
        damages = find_gaps(segments) + damages  # else there is a reason for gaps
    folder.note(damages)
    correct(faults)
    return lost


def _listed_first(segments: list[Segment], folder: Folder) -> list[Segment]:
    """Keeps a file that was put back from displacing steps that are newer."""
    listed = folder.before.rows if folder.before else {}
    return sorted(segments, key=lambda segment: segment.spec.number not in listed)


def _end_of_orders(folder: Folder, segments: list[Segment]) -> int | None:
    """A number above the orders of all rows, if the folder has an inventory.

    Rows that were written since its last change are all in the files of today, or in
    those that are missing.
    """
    if folder.before is None or not segments:
        return None
    spec = segments[0].spec
    away = len(folder.before.rows.keys() - {x.spec.number for x in segments})
    rows = sum(segment.rows_ever() for segment in segments)
    return folder.before.next_order + rows + away * spec.chunks * spec.chunksize


def _enter_all(store: Store, segments: list[Segment]) -> None:
    allocator = store.allocator
    records = [
        (segment.table[slot], segment.spec.number, slot)
        for segment in segments
        for slot in np.flatnonzero(segment.usable()).tolist()
    ]
    records.sort(key=lambda record: record[0]['ordinal'])
    for record, number, slot in records:
        ordinal, stream = int(record['ordinal']), int(record['stream'])
        if record['first'] < record['committed']:
            prev = _complete_before(store, int(record['prev']), stream)
            _enter(store, ordinal, stream, prev, number, slot)
            _continue_stream(store, ordinal, stream)
        if record['committed']:
            _read_counters(store, stream, allocator.segments[number], slot)
        store.next_ordinal = ordinal + 1


def load_source(store: Store, path: Any) -> None:
    """Adds the rows of another run's folder before those of this run; read-only.

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
    for damage in leave_out(segments):
        damage.report()
    attach(store, segments, home)


def leave_out(segments: list[Segment]) -> list[Damage]:
    """Leaves out what is damaged in privately mapped segments; returns the damages."""
    for segment in segments:
        _fetch_numbers(segment)
    return correct(find_faults(segments))


def attach(store: Store, segments: list[Segment], home: Any) -> None:
    """Enters privately mapped segments of another store.

    Chunks get negative ordinals and orders: they are older than all rows of this run.
    """
    records = [
        (segment.table[slot], segment, slot)
        for segment in segments
        for slot in np.flatnonzero(segment.usable()).tolist()
        if segment.table['first'][slot] < segment.table['committed'][slot]
    ]
    records.sort(key=lambda entry: entry[0]['ordinal'])
    names = {int(r['ordinal']): i - len(records) for i, (r, _, _) in enumerate(records)}
    newest = max((_last(s, slot, ORDER.name) for _, s, slot in records), default=0)
    for i, segment in enumerate(segments):
        segment.columns[ORDER.name][:] -= newest + 1
        segment.shift = newest + 1
        _share_schema(store, segment, home)
        store.allocator.segments[-1 - i] = segment
    numbers = {id(segment): -1 - i for i, segment in enumerate(segments)}
    for record, segment, slot in records:
        ordinal, stream = names[int(record['ordinal'])], int(record['stream'])
        prev = names.get(int(record['prev']), NONE)
        prev = _complete_before(store, prev, stream)
        _enter(store, ordinal, stream, prev, numbers[id(segment)], slot)
    store.index.find_stops()


def recover(segment: Segment, boot: str, clean: bool) -> int:
    """Drops rows that were not synced if the machine went down since they were written;
    returns how many.

    clean: whether everything was on the disk when the last writer ended.
    """
    lost = 0
    if _booted_since(segment, boot) and not clean:
        table = segment.table
        unsynced = table['committed'] > table['durable']
        lost = int((table['committed'] - table['durable'])[unsynced].sum())
        table['committed'] = np.minimum(table['committed'], table['durable'])
        table['first'] = np.minimum(table['first'], table['committed'])
        table['seal'][unsynced] = 0
        segment.lose_latents()
    segment.header['boot'] = boot.encode()
    return lost


def _fetch_numbers(segment: Segment) -> None:
    """Prefetches the columns that loading reads, of all chunks at once."""
    names, size = [SERIAL.name, ORDER.name], segment.spec.chunksize
    for slot in np.flatnonzero(segment.table['committed']).tolist():
        rows = min(int(segment.table['committed'][slot]), size)
        segment.fetch(names, slot, 0, rows)


def _booted_since(segment: Segment, boot: str) -> bool:
    return bool(segment.header[0]['boot'] != boot.encode())


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


def _complete_before(store: Store, prev: int, stream: int) -> int:
    """The predecessor if its rows are all there, else NONE: the stream has a gap.

    One that is of another stream, or followed by another chunk already, is none.
    """
    row = prev - store.index.base
    if prev == NONE or not 0 <= row < store.index.count:
        return NONE
    record = store.index.table[row]
    if not record['live'] or record['stream'] != stream or record['next'] != NONE:
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


def _drop_empty(store: Store, folder: Folder) -> None:
    """Continues the newest segment if it has room; deletes those without rows.

    Where damage is the reason, the file goes to the quarantine instead.
    """
    allocator = store.allocator
    for number in sorted(n for n in allocator.segments if n >= 0):
        segment = allocator.segments[number]
        taken = np.flatnonzero(segment.taken())
        segment.used = int(taken[-1]) + 1 if len(taken) else 0
        if number == max(allocator.segments) and segment.used < segment.spec.chunks:
            allocator.continue_in(number)
        elif not segment.live and segment.usable().sum() < len(taken):
            allocator.forget(number)
            assert segment.path is not None
            reason = 'all of its chunks are damaged or evicted'
            folder.note([quarantine(folder.path, Damage(segment.path, reason, 0))])
        elif not segment.live:
            allocator.delete(number)
