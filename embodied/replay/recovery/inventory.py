"""Inventory of a replay folder: which segments belong there, and how many steps each.

It is replaced, without a sync, whenever a segment is made and before one is deleted. So
a file that is listed but not there was taken away by something else.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from embodied.core.files import sync_path, write_whole

from ..storage.segment import Segment

__all__ = ['INVENTORY', 'BadInventory', 'Inventory']

INVENTORY = 'segments.json'
FORMAT = 1


class BadInventory(Exception):
    """The file is not an inventory of this format; says why."""


class Inventory:
    """rows: steps by number of the segment, as of the last count.
    next_number: above those of all segments ever made. next_order: above the orders of
    all rows that were written before the last change.
    """

    def __init__(self, folder: Path, store: bytes):
        self.folder = folder
        self.store = store
        self.rows: dict[int, int] = {}
        self.next_number = 0
        self.next_order = 0
        self._synced = True

    @classmethod
    def read(cls, folder: Path) -> 'Inventory':
        """Inventory of a folder; FileNotFoundError if it has none."""
        try:
            data = json.loads((folder / INVENTORY).read_text())
            if data['format'] != FORMAT:
                raise BadInventory(f'it has format {data["format"]}, not {FORMAT}')
            result = cls(folder, bytes.fromhex(data['store']))
            result.rows = {int(k): int(v) for k, v in data['segments'].items()}
            result.next_number = int(data['next_number'])
            result.next_order = int(data['next_order'])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise BadInventory('it is not the inventory of a replay') from error
        return result

    def path_of(self, number: int) -> Path:
        return self.folder / f'{number:08d}.seg'

    def add(self, number: int, segments: Mapping[int, Segment]) -> None:
        """A segment was made."""
        self.rows[number] = 0
        self.count(segments, dirty_only=True)
        self.write()

    def remove(self, number: int) -> None:
        """A segment is about to be deleted."""
        self.rows.pop(number, None)
        self.write()

    def count(self, segments: Mapping[int, Segment], dirty_only: bool = False) -> None:
        """Counts the steps of segments, or of those only that have changed."""
        for number, segment in segments.items():
            if number in self.rows and (segment.dirty or not dirty_only):
                self.rows[number] = segment.rows()

    def write(self) -> None:
        self.next_number = max(self.next_number, *(n + 1 for n in self.rows), 0)
        data = {
            'format': FORMAT,
            'store': self.store.hex(),
            'next_number': self.next_number,
            'next_order': self.next_order,
            'segments': {str(k): self.rows[k] for k in sorted(self.rows)},
        }
        write_whole(self.folder / INVENTORY, json.dumps(data), sync=False)
        self._synced = False

    def sync(self) -> None:
        """Makes the last `write` survive a loss of power."""
        if not self._synced:
            self._synced = True
            sync_path(self.folder / INVENTORY)
