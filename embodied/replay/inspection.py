"""Inspection: looks at a replay folder without writing to it, for people and tests."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from embodied.core.base import Array, Batch

from .allocator import Allocator
from .card import was_closed
from .folder import (
    boot_id,
    find_folder,
    list_segments,
    local_path,
    need_descriptors,
)
from .index import NONE, join
from .loader import attach, recover
from .schema import ORDER, SERIAL, VERSION, Schema
from .segment import FREE, BadSegment, Segment
from .store import Store, is_broken

__all__ = ['Inspection']


class Inspection:
    """Committed rows of a folder, as they were when it was opened."""

    def __init__(self, path: Any):
        self.path = find_folder(local_path(path))
        paths = list_segments(self.path)
        need_descriptors(len(paths))
        self.bad: dict[Path, str] = {}
        self.segments: list[Segment] = []
        for file in paths:
            try:
                self.segments.append(Segment.open(file, writable=False))
            except BadSegment as error:
                self.bad[file] = str(error)
            except FileNotFoundError:
                continue  # evicted meanwhile, by the run that writes here
        chunksize = self.segments[0].spec.chunksize if self.segments else 1
        self._store = Store(1, None, Allocator(b'', chunksize, None, None))
        for segment in self.segments:
            recover(segment, boot_id(), was_closed(self.path))
        attach(self._store, self.segments, self.path)

    @property
    def schema(self) -> Schema:
        return self._store.schema or Schema([])

    @property
    def steps(self) -> int:
        return self._store.rows

    def streams(self) -> Iterator[tuple[int, Array]]:
        """Worker and positions [n] of each unbroken run of rows, oldest first."""
        table, base = self._store.index.table, self._store.index.base
        begins = (table['live'] > 0) & (table['prev'] == NONE)
        for row in np.flatnonzero(begins).tolist():
            worker, parts, ordinal = int(table['stream'][row]), [], row + base
            while ordinal != NONE:
                record = table[ordinal - base]
                parts.append(join(ordinal, np.arange(record['first'], record['fill'])))
                ordinal = int(record['next'])
            yield worker, np.concatenate(parts)

    def read(self, name: str, positions: Array) -> Array:
        return self._store.read(name, positions)

    def serials(self, positions: Array) -> Array:
        """Numbers of rows within their stream."""
        return self._store.read(SERIAL.name, positions)

    def episodes(self) -> Iterator[tuple[int, Array]]:
        """Worker and positions of each episode, cut where `is_first` says so."""
        for worker, positions in self.streams():
            cuts = np.zeros(0, np.int64)
            if 'is_first' in self.schema.columns:
                cuts = np.flatnonzero(self.read('is_first', positions))
            for part in np.split(positions, cuts[cuts > 0]):
                yield worker, part

    def values(self, positions: Array, latents: bool = False) -> Batch:
        """All columns [n, ...] at positions [n]; torn latents are zero."""
        broken = is_broken(self.read(VERSION.name, positions))
        result = {}
        for column in self.schema.columns.values():
            if latents or not column.latent:
                result[column.name] = value = self.read(column.name, positions)
                if column.latent:
                    value[broken] = 0
        return result

    def problems(self) -> list[str]:
        """One line per thing that is not as it should be."""
        lines = [f'{path}: {reason}' for path, reason in self.bad.items()]
        seen: set[int] = set()
        for segment in self.segments:
            for slot in np.flatnonzero(segment.table['ordinal'] != FREE).tolist():
                where = f'{segment.path}, chunk {slot}'
                lines += [f'{where}: {line}' for line in _check_chunk(segment, slot)]
                ordinal = int(segment.table['ordinal'][slot])
                if ordinal in seen:
                    lines.append(f'{where}: its number {ordinal} is used twice')
                seen.add(ordinal)
        return lines

    def torn(self) -> int:
        """Rows whose latents were cut off in mid-write and read as zeros."""
        return sum(
            int((segment.columns[VERSION.name][slot, :fill] & 1).sum())
            for segment in self.segments
            for slot, fill in enumerate(segment.table['committed'])
        )


def _check_chunk(segment: Segment, slot: int) -> list[str]:
    record = segment.table[slot]
    rows = slice(int(record['first']), int(record['committed']))
    lines = []
    if record['first'] > record['committed']:
        lines.append(f'{record["first"]} rows evicted of {record["committed"]}')
    if record['durable'] > record['committed']:
        lines.append(f'{record["durable"]} rows durable of {record["committed"]}')
    for column in (SERIAL, ORDER):
        if (np.diff(segment.columns[column.name][slot, rows]) <= 0).any():
            lines.append(f'the column {column.name} does not grow')
    return lines
