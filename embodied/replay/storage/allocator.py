"""Allocator of chunks: owns the segments, makes new ones and frees dead ones."""

import logging
from pathlib import Path

from embodied.core.errors import ReplayError

from ..recovery.inventory import Inventory
from .schema import Schema
from .segment import Segment, SegmentSpec

__all__ = ['GIGABYTE', 'SEGMENT_BYTES', 'Allocator', 'size_text']

log = logging.getLogger(__name__)

GIGABYTE = 10**9
UNITS = {'GB': GIGABYTE, 'MB': 10**6, 'KB': 10**3}
SEGMENT_BYTES = 256 * 2**20
# Bounds are kept by freeing whole segments, so a bounded replay has at least as many.
SEGMENTS_PER_BOUND = 8
# Number of chunks of large rows in a segment: streams that end early waste little, and
# those that write at once mostly write to one file. A chunk still holds some sequences.
CHUNKS_PER_SEGMENT = 64
MIN_CHUNK = 128  # steps
PADDING = 2**15  # bytes of a chunk between its columns, at most in the usual case


class Allocator:
    """Hands out chunk slots in segments of one schema.

    folder: where segment files go, or None for anonymous memory. The layout is fixed
    by `prepare`, when the first step is known.
    """

    def __init__(
        self,
        store_id: bytes,
        chunksize: int,
        capacity: int | None,
        max_bytes: int | None,
        folder: Path | None = None,
        boot: str = '',
        latents_in_file: bool = True,
    ):
        self.store_id = store_id
        self.prefix = store_id  # of step ids
        self.chunksize = chunksize
        self.segments: dict[int, Segment] = {}
        self.schema: Schema | None = None
        self.next_number = 0
        self.widest = chunksize  # steps of the largest chunk, also of other runs
        self.capacity = capacity
        self.max_bytes = max_bytes
        self.folder = folder
        self.boot = boot
        self.latents_in_file = latents_in_file
        self.inventory: Inventory | None = None
        self._chunks = 0
        self._current: Segment | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of all segments of this replay, free chunks included."""
        return sum(s.spec.nbytes for n, s in self.segments.items() if n >= 0)

    @property
    def on_disk(self) -> bool:
        """Whether there are, or will be, segments in files."""
        return bool(self.folder or any(s.path for s in self.segments.values()))

    @property
    def segment_bytes(self) -> int:
        return self._spec(0).nbytes

    def prepare(self, schema: Schema) -> None:
        """Fixes the schema and how many chunks a segment holds."""
        self.schema = schema
        self.chunksize = min(self.chunksize, _fitting(schema.row_bytes))
        self.widest = max(self.widest, self.chunksize)
        self._chunks = max(1, SEGMENT_BYTES // self._chunk_bytes())
        if self.capacity:
            share = self.capacity // self.chunksize // SEGMENTS_PER_BOUND
            self._chunks = max(1, min(self._chunks, share))
        if self.max_bytes:
            while self._chunks > 1 and self._too_coarse():
                self._chunks -= 1
            if self.max_bytes < 2 * self.segment_bytes:
                raise ReplayError(
                    f'replay.max_gb allows {self.max_bytes / GIGABYTE:.3f} GB, but a '
                    f'chunk of {self.chunksize} steps takes '
                    f'{self.segment_bytes / GIGABYTE:.3f} GB and two of them must fit. '
                    f'Raise replay.max_gb or lower replay.chunksize.'
                )

    def take(self, ordinal: int, stream: int, prev: int) -> tuple[int, int]:
        """Opens a chunk in a free slot; returns segment number and slot."""
        if self._current is None or self._current.used == self._current.spec.chunks:
            self._current = self._create()
        slot = self._current.used
        self._current.open_chunk(slot, ordinal, stream, prev)
        return self._current.spec.number, slot

    def needs_eviction(self) -> bool:
        """Whether the next chunk needs a segment that max_gb has no room for."""
        if not self.max_bytes:
            return False
        if self._current is not None and self._current.used < self._current.spec.chunks:
            return False
        return self.nbytes + self.segment_bytes > self.max_bytes

    def oldest(self) -> int:
        return min(number for number in self.segments if number >= 0)

    def is_filling(self, segment: Segment) -> bool:
        """Whether new chunks go to this segment."""
        return segment is self._current and segment.used < segment.spec.chunks

    def continue_in(self, number: int) -> None:
        """Continues to fill a segment of an earlier process."""
        self._current = self.segments[number]

    def release(self, number: int) -> None:
        """Frees one chunk of a segment; the file is deleted with the last one."""
        segment = self.segments[number]
        segment.live -= 1
        if segment.live or self.is_filling(segment):
            return
        self.delete(number)

    def delete(self, number: int) -> None:
        """Forgets a segment and its file; the file of a source stays."""
        segment = self.forget(number)
        if number >= 0 and segment.path is not None:
            segment.path.unlink()

    def forget(self, number: int) -> Segment:
        """Forgets a segment and keeps its file."""
        segment = self.segments.pop(number)
        segment.live = 0
        if segment is self._current:
            self._current = None
        if number >= 0 and self.inventory is not None:
            try:
                self.inventory.remove(number)
            except OSError as error:
                # On a full disk, deleting the file is what helps; the next change of
                # the inventory makes up for this one.
                log.error('The inventory of %s is out of date: %s', self.folder, error)
        return segment

    def _create(self) -> Segment:
        number = self.next_number
        path = self.folder / f'{number:08d}.seg' if self.folder else None
        spec = self._spec(number)
        try:
            segment = Segment.create(spec, path, self.boot)
            if self.inventory is not None:
                self.inventory.add(number, self.segments)
        except OSError as error:
            raise ReplayError(
                f'Replay cannot reserve {size_text(spec.nbytes)}'
                f'{f" in {self.folder}" if path else " of memory"}: {error.strerror}. '
                f'What is stored stays valid. Free some space, or lower replay.size '
                f'or replay.max_gb.'
            ) from error
        self.next_number += 1
        self.segments[number] = segment
        return segment

    def _spec(self, number: int, chunks: int | None = None) -> SegmentSpec:
        assert self.schema is not None
        return SegmentSpec(
            self.schema,
            chunks or self._chunks,
            self.chunksize,
            self.store_id.hex(),
            number,
            self.latents_in_file,
        )

    def _chunk_bytes(self) -> int:
        """Bytes that one more chunk adds to a segment."""
        one, two = (self._spec(0, chunks).nbytes for chunks in (1, 2))
        return two - one

    def _too_coarse(self) -> bool:
        assert self.max_bytes is not None
        return self.segment_bytes * SEGMENTS_PER_BOUND > self.max_bytes


def _fitting(row_bytes: int) -> int:
    """Most steps of a chunk."""
    share = SEGMENT_BYTES // CHUNKS_PER_SEGMENT - PADDING
    return max(1, min(SEGMENT_BYTES // row_bytes, max(MIN_CHUNK, share // row_bytes)))


def size_text(nbytes: float) -> str:
    """Bytes in the largest unit of which there is a tenth."""
    unit = next((x for x, size in UNITS.items() if nbytes >= size / 10), 'KB')
    return f'{nbytes / UNITS[unit]:.1f} {unit}'
