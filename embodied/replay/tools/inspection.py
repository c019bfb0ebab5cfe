"""Inspection: reads a replay folder without writing to it, for tools and tests."""

from collections.abc import Container, Iterator
from typing import Any

import numpy as np

from embodied.core.base import Array, Batch

from ..recovery.damage import Damage
from ..recovery.folder import (
    boot_id,
    find_folder,
    list_segments,
    local_path,
    need_descriptors,
)
from ..recovery.inventory import INVENTORY, BadInventory, Inventory
from ..recovery.loader import attach, leave_out, recover
from ..recovery.metadata import METADATA, BadMetadata, Metadata, was_closed
from ..recovery.survey import Survey, find_owner
from ..sampling.index import NONE, join
from ..storage import checksums
from ..storage.allocator import Allocator
from ..storage.row_access import is_broken
from ..storage.schema import SERIAL, VERSION, Schema
from ..storage.segment import Segment
from ..storage.store import Store

__all__ = ['Inspection', 'Rows']


class Rows:
    """Reads the rows of a store, by stream and by episode."""

    def __init__(self, store: Store):
        self._store = store

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

    def values(
        self,
        positions: Array,
        latents: bool = False,
        names: Container[str] | None = None,
    ) -> Batch:
        """Columns [n, ...] at positions [n]; torn latents are zero.

        names: those that are read; None: all, with or without latents.
        """
        broken = is_broken(self.read(VERSION.name, positions))
        result = {}
        for column in self.schema.columns.values():
            named = names is None or column.name in names
            if named and (latents or not column.latent):
                result[column.name] = value = self.read(column.name, positions)
                if column.latent:
                    value[broken] = 0
        return result


class Inspection(Rows):
    """Committed rows of a folder, as they were when it was opened."""

    def __init__(self, path: Any):
        self.path = find_folder(local_path(path))
        need_descriptors(len(list_segments(self.path)))
        self._damages: list[Damage] = []
        self.segments = self._open_segments()
        chunksize = self.segments[0].spec.chunksize if self.segments else 1
        super().__init__(Store(1, None, Allocator(b'', chunksize, None, None)))
        for segment in self.segments:
            recover(segment, boot_id(), was_closed(self.path))
        self._damages += leave_out(self.segments)
        attach(self._store, self.segments, self.path)

    def problems(self) -> list[str]:
        """One line per damage."""
        rotten = [
            Damage(segment.path, reason, segment.rows_of(slot), slot)
            for segment in self.segments
            for slot in np.flatnonzero(segment.taken()).tolist()
            if segment.path and (reason := _verdict(segment, slot))
        ]
        return [str(damage) for damage in self._damages + rotten]

    def unsealed(self) -> int:
        """Full chunks without checksums, such as those of version 0.1.0."""
        return sum(
            checksums.is_full(segment, slot) and not checksums.is_sealed(segment, slot)
            for segment in self.segments
            for slot in np.flatnonzero(segment.usable()).tolist()
        )

    def torn(self) -> int:
        """Rows whose latents were cut off in mid-write and read as zeros."""
        return sum(
            int((segment.columns[VERSION.name][slot, :fill] & 1).sum())
            for segment in self.segments
            for slot, fill in enumerate(segment.table['committed'])
        )

    def _open_segments(self) -> list[Segment]:
        metadata, inventory = self._read_metadata(), self._read_inventory()
        owner = find_owner(self.path, metadata.store if metadata else None, inventory)
        if metadata is not None and metadata.store != owner:
            self._complain(METADATA, 'it belongs to another replay')
        if inventory is not None and inventory.store != owner:
            self._complain(INVENTORY, 'it belongs to another replay')
            inventory = None
        survey = Survey(self.path, owner, writable=False)
        if inventory is not None:
            # The run that writes here may have evicted some of them meanwhile.
            again = self._read_inventory()
            now = again.rows if again else {}
            inventory.rows = {k: v for k, v in inventory.rows.items() if k in now}
        for damages in survey.damages(inventory):
            self._damages += damages
        for segment in survey.misnamed:
            assert segment.path is not None
            reason = f'it holds the segment {segment.spec.number}'
            self._complain(segment.path.name, reason)
        return list(survey.segments.values())

    def _read_metadata(self) -> Metadata | None:
        try:
            return Metadata.read(self.path)
        except FileNotFoundError:
            self._complain(METADATA, 'it is missing')
        except BadMetadata as error:
            self._complain(METADATA, str(error))
        return None

    def _read_inventory(self) -> Inventory | None:
        try:
            return Inventory.read(self.path)
        except FileNotFoundError:
            pass  # of version 0.1.0
        except BadInventory as error:
            self._complain(INVENTORY, str(error))
        return None

    def _complain(self, name: str, reason: str) -> None:
        damage = Damage(self.path / name, reason, 0)
        if damage not in self._damages:
            self._damages.append(damage)


def _verdict(segment: Segment, slot: int) -> str:
    """What is wrong with the columns of a chunk; empty if nothing is known to be."""
    if not segment.usable()[slot]:
        return 'it is damaged and out of use'
    sealed = checksums.is_sealed(segment, slot)
    whole = not sealed or checksums.values_match(segment, slot)
    return '' if whole else 'it fails its checksum'
