"""Segment: one mapped file (or anonymous memory) with chunks of many streams.

    header      magic, checksum, boot id, then the description as JSON
    chunks      one CHUNK record each: whose it is, what it follows, how far it is valid
    main        per chunk: one aligned array [chunksize, ...] per column
    marks       the same for priorities, which are overwritten
    latents     the same for states of the model, also overwritten; may lie in RAM

A row counts once `committed` says so, and that is written after the row.
"""

import dataclasses
import json
import mmap
import os
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from embodied.core.base import Array
from embodied.core.files import why_unreadable

from .column_layout import HUGE, PAGE, ColumnLayout, round_up
from .schema import PRIORITY, VERSION, Schema

__all__ = ['CHUNK', 'FREE', 'BadSegment', 'Segment', 'SegmentSpec', 'read_spec']

MAGIC = b'DRPLSEG2'
LARGE = 64 * 2**20  # bytes
HEAD = 2**16  # bytes; where header and records lie, as a rule
FREE = np.iinfo(np.int64).min  # ordinal of a chunk slot that is not in use
# Versions of rows whose latents are gone and of new ones. Each update adds two, and is
# under way while they are odd.
LOST, WHOLE = 0, 2
RETIRED = 0x44454144  # a value that no damage is likely to produce

HEADER = np.dtype([('magic', 'S8'), ('bytes', 'u4'), ('crc', 'u4'), ('boot', 'S48')])
CHUNK = np.dtype(
    [
        ('ordinal', 'i8'),  # number of the chunk, never used twice
        ('stream', 'i8'),
        ('prev', 'i8'),  # ordinals of the chunks before and after it in the stream
        ('next', 'i8'),
        ('crc', 'u4'),  # of ordinal, stream and prev, which never change
        ('first', 'u4'),  # rows before this one are evicted
        ('committed', 'u4'),  # rows that are written
        ('durable', 'u4'),  # rows that survive a loss of power
        # Files of version 0.1.0 have zeros from here on, and ignore the rest.
        ('numbers', 'u4'),  # checksum of the columns that loading reads
        ('values', 'u4'),  # and of those that sampling reads
        ('seal', 'u4'),  # of both and the ordinal, written last; 0: no checksums
        ('retired', 'u4'),  # RETIRED: damaged and out of use
    ]
)


class BadSegment(Exception):
    """The file is not a whole segment of this format; the message says why."""


@dataclasses.dataclass(eq=False)
class SegmentSpec:
    """Everything that decides where columns and records lie within a segment."""

    schema: Schema
    chunks: int
    chunksize: int
    store: str
    number: int
    latents_in_file: bool

    def __post_init__(self) -> None:
        self.description = json.dumps(self.to_json()).encode()
        self.table = round_up(HEADER.itemsize + len(self.description), PAGE)
        size, schema = (self.chunks, self.chunksize), self.schema
        start = self.table + self.chunks * CHUNK.itemsize
        self.main = ColumnLayout(schema.main, *size, round_up(start, PAGE))
        self.marks = ColumnLayout(schema.marks, *size, self.main.end)
        self.latents = ColumnLayout(schema.latents, *size, self.marks.end)
        self.in_file = [self.main, self.marks]
        if self.latents_in_file:
            self.in_file.append(self.latents)
        self.nbytes = self.in_file[-1].end

    def to_json(self) -> dict[str, Any]:
        return {
            'store': self.store,
            'number': self.number,
            'chunks': self.chunks,
            'chunksize': self.chunksize,
            'latents_in_file': self.latents_in_file,
            'columns': self.schema.to_json(),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> 'SegmentSpec':
        return cls(
            Schema.from_json(data['columns']),
            int(data['chunks']),
            int(data['chunksize']),
            str(data['store']),
            int(data['number']),
            bool(data['latents_in_file']),
        )


class Segment:
    """Views on the mapping: `header`, `table` [chunks], `columns[name]` [chunks, size].

    Copies taken from the columns stay valid after the file is deleted: the mapping
    lives as long as anything refers to it.
    """

    def __init__(
        self, spec: SegmentSpec, memory: Any, path: Path | None, writable: bool
    ):
        self.spec = spec
        self.path = path
        self.writable = writable  # whether changes reach the file
        self.used = 0  # slots taken so far, from the front
        self.live = 0  # of these, chunks that are not evicted
        self.dirty = False  # committed rows that are not durable yet
        self.shift = 0  # what orders in memory are below those in the file
        self._memory = memory
        self.header = np.frombuffer(memory, HEADER, 1)
        self.table = np.frombuffer(memory, CHUNK, spec.chunks, spec.table)
        self.columns: dict[str, Array] = {}
        for layout in spec.in_file:
            self.columns |= layout.views(memory, 0)
        if not spec.latents_in_file:
            start = spec.latents.start
            room = _anonymous(spec.latents.end - start)
            self.columns |= spec.latents.views(room, start)

    @classmethod
    def create(cls, spec: SegmentSpec, path: Path | None, boot: str) -> 'Segment':
        """New, empty segment; the blocks of a file are reserved here and now."""
        # A file under its own name is a whole one: a crash leaves a draft, which the
        # next process deletes.
        draft = path and path.with_suffix('.new')
        memory = _anonymous(spec.nbytes) if draft is None else _reserve(draft, spec)
        memory[HEADER.itemsize : HEADER.itemsize + len(spec.description)] = (
            spec.description
        )
        segment = cls(spec, memory, path, path is not None)
        segment.table['ordinal'] = FREE
        head = segment.header
        head['bytes'] = len(spec.description)
        head['crc'] = zlib.crc32(spec.description)
        head['boot'] = boot.encode()
        head['magic'] = MAGIC
        if draft is not None and path is not None:
            draft.rename(path)
        return segment

    @classmethod
    def open(cls, path: Path, writable: bool) -> 'Segment':
        """Maps an existing file; changes stay private if not `writable`."""
        access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_COPY
        with open(path, 'r+b' if writable else 'rb') as file:
            size = os.fstat(file.fileno()).st_size
            if size < HEADER.itemsize:
                raise BadSegment(f'it has {size} bytes, less than a header')
            memory = mmap.mmap(file.fileno(), 0, access=access)
        _will_need(memory, 0, min(size, HEAD))
        spec = _describe(memory, size)
        segment = cls(spec, memory, path, writable)
        if not spec.latents_in_file:
            segment.lose_latents()
        return segment

    def open_chunk(self, slot: int, ordinal: int, stream: int, prev: int) -> None:
        record = self.table[slot : slot + 1]
        record['stream'] = stream
        record['prev'] = prev
        record['next'] = FREE
        record['first'] = record['committed'] = record['durable'] = 0
        record['crc'] = _chunk_crc(ordinal, stream, prev)
        record['seal'] = record['retired'] = 0
        self.columns[VERSION.name][slot] = WHOLE
        self.columns[PRIORITY.name][slot] = np.nan
        # Last: only now does the slot count as taken.
        record['ordinal'] = ordinal
        self.used = max(self.used, slot + 1)
        self.live += 1

    def fetch(self, names: Sequence[str], slot: int, begin: int, steps: int) -> None:
        """Lets the system read rows of columns from the disk ahead of their use."""
        if self.path is None:
            return
        for layout in self.spec.in_file:
            for name in names:
                if name in layout:
                    _will_need(self._memory, *layout.span(name, slot, begin, steps))

    def lose_latents(self) -> None:
        """Makes the latents of all present rows read as the zero state."""
        there = np.arange(self.spec.chunksize) < self.table['committed'][:, None]
        self.columns[VERSION.name][:] = np.where(there, LOST, WHOLE)

    def taken(self) -> Array:
        """Mask [chunks] of the slots that are, or were, in use."""
        return self.table['ordinal'] != FREE

    def usable(self) -> Array:
        """Mask [chunks] of the slots with valid chunks."""
        return self.taken() & (self.table['retired'] != RETIRED)

    def retire(self, slot: int) -> None:
        """Takes a damaged chunk out of use for good; its bytes stay as they are."""
        self.table['retired'][slot] = RETIRED

    def record_is_whole(self, slot: int) -> bool:
        record = self.table[slot]
        crc = _chunk_crc(record['ordinal'], record['stream'], record['prev'])
        return bool(crc == record['crc'])

    def rows_ever(self) -> int:
        """The same with the slots of evicted chunks."""
        return int(np.minimum(self.table['committed'], self.spec.chunksize).sum())

    def rows(self) -> int:
        """Number of committed steps; counters out of range are clipped."""
        return sum(map(self.rows_of, np.flatnonzero(self.usable()).tolist()))

    def rows_of(self, slot: int) -> int:
        record, size = self.table[slot], self.spec.chunksize
        return max(0, min(int(record['committed']), size) - int(record['first']))


def read_spec(path: Path) -> SegmentSpec:
    """Spec in the header of a file; the rest is not read."""
    with open(path, 'rb') as file:
        size = os.fstat(file.fileno()).st_size
        head = file.read(HEADER.itemsize)
        if len(head) < HEADER.itemsize:
            raise BadSegment(f'it has {size} bytes, less than a header')
        count = int(np.frombuffer(head, HEADER, 1)[0]['bytes'])
        return _describe(head + file.read(min(count, size)), size)


def _describe(memory: Any, size: int) -> SegmentSpec:
    head = np.frombuffer(memory, HEADER, 1)[0]
    if head['magic'] != MAGIC:
        raise BadSegment('it does not begin like a segment')
    end = HEADER.itemsize + int(head['bytes'])
    text = memory[HEADER.itemsize : end]
    if zlib.crc32(text) != head['crc']:
        raise BadSegment('its description fails its checksum')
    try:
        spec = SegmentSpec.from_json(json.loads(text))
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise BadSegment(
            f'its description cannot be read: {why_unreadable(error)}'
        ) from error
    if size != spec.nbytes:
        raise BadSegment(f'it has {size} of {spec.nbytes} bytes')
    return spec


def _anonymous(nbytes: int) -> mmap.mmap:
    # Private: shared memory gets no large pages, and forks must not write to it.
    memory = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    _advise(memory, nbytes)
    return memory


def _advise(memory: mmap.mmap, nbytes: int) -> None:
    """Asks for large pages: streams that take turns would fault on every small one,
    which costs more than copying the rows. Small segments would waste them, and what
    is updated in place in a file would be written back two megabytes at a time.
    """
    if nbytes >= LARGE and hasattr(mmap, 'MADV_HUGEPAGE'):
        memory.madvise(mmap.MADV_HUGEPAGE, 0, nbytes)


def _will_need(memory: mmap.mmap, start: int, nbytes: int) -> None:
    """Starts to read just these bytes: a fault would wait, and read much around it."""
    if hasattr(mmap, 'MADV_WILLNEED'):
        memory.madvise(mmap.MADV_WILLNEED, start, nbytes)


def _reserve(path: Path, spec: SegmentSpec) -> mmap.mmap:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        # Writing to a hole of a mapping on a full disk would be a SIGBUS.
        if hasattr(os, 'posix_fallocate'):
            os.posix_fallocate(fd, 0, spec.nbytes)
        else:
            os.truncate(fd, spec.nbytes)
        memory = mmap.mmap(fd, spec.nbytes)
        edge = spec.main.end // HUGE * HUGE
        _advise(memory, edge)
        if hasattr(mmap, 'MADV_RANDOM'):
            # Reading around the rest would put small pages where large ones belong.
            memory.madvise(mmap.MADV_RANDOM, edge, spec.nbytes - edge)
        return memory
    except OSError:
        path.unlink()
        raise
    finally:
        os.close(fd)


def _chunk_crc(ordinal: int, stream: int, prev: int) -> int:
    return zlib.crc32(np.array([ordinal, stream, prev], np.int64).tobytes())
