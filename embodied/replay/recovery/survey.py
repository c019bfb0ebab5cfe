"""Survey of a replay folder: which files are its segments, and what the others are."""

import collections
import dataclasses
import json
from collections.abc import Iterable
from pathlib import Path

from embodied.core.errors import ReplayError

from ..storage.segment import BadSegment, Segment, read_spec
from .damage import Damage
from .inventory import Inventory

__all__ = ['SUFFIX', 'Survey', 'find_owner', 'list_segments', 'number_of', 'seg_files']

SUFFIX = '.seg'


class Survey:
    """Opens the files of a folder: `segments` by number, and `bad` for the others.

    A file counts by the number in its header. One under a wrong name, such as after two
    files were swapped, is used nevertheless, unless the right one is there: then it is
    a copy.
    """

    def __init__(self, folder: Path, store: bytes | None, writable: bool):
        self.bad: list[Damage] = []
        self.segments: dict[int, Segment] = {}
        found = [self._open(path, store, writable) for path in seg_files(folder)]
        opened = [segment for segment in found if segment is not None]
        opened.sort(key=lambda segment: not _well_named(segment))
        for segment in self._alike(opened):
            number = segment.spec.number
            if number in self.segments:
                self._refuse(segment, f'it is a copy of number {number}', 0)
            else:
                self.segments[number] = segment
        self.segments = dict(sorted(self.segments.items()))

    @property
    def misnamed(self) -> list[Segment]:
        return [x for x in self.segments.values() if not _well_named(x)]

    def damages(self, inventory: Inventory | None) -> tuple[list[Damage], list[Damage]]:
        """Damages of unusable files, and of files that are missing."""
        if inventory is None:
            return self.bad, []
        lost = {n: rows for n, rows in inventory.rows.items() if n not in self.segments}
        bad = []
        for damage in self.bad:
            # Files that were added cost nothing; others have replaced what was there.
            number = number_of(damage.path)
            steps = 0 if number is None else lost.pop(number, 0)
            bad.append(dataclasses.replace(damage, steps=max(steps, damage.steps or 0)))
        missing = [
            Damage(inventory.path_of(number), 'it is missing', rows or None)
            for number, rows in sorted(lost.items())
        ]
        return bad, missing

    def _open(self, path: Path, store: bytes | None, writable: bool) -> Segment | None:
        try:
            segment = Segment.open(path, writable)
        except BadSegment as error:
            self.bad.append(Damage(path, str(error)))
            return None
        except FileNotFoundError:
            return None  # evicted meanwhile, by the run that writes here
        except OSError as error:
            raise ReplayError(
                f'The replay file {path} cannot be opened: {error.strerror}. Give this '
                f'user access to it, or move it away to go on without its steps.'
            ) from error
        if store is not None and segment.spec.store != store.hex():
            self.bad.append(Damage(path, 'it belongs to another replay'))
            return None
        return segment

    def _alike(self, segments: list[Segment]) -> list[Segment]:
        """Segments with the same keys as most of them."""
        keys = {id(x): json.dumps(x.spec.schema.to_json()) for x in segments}
        common = collections.Counter(keys.values()).most_common(1)
        for segment in segments:
            if keys[id(segment)] != common[0][0]:
                self._refuse(segment, 'it holds other keys than the other segments')
        return [x for x in segments if keys[id(x)] == common[0][0]]

    def _refuse(self, segment: Segment, reason: str, steps: int | None = None) -> None:
        assert segment.path is not None
        rows = segment.rows() if steps is None else steps
        self.bad.append(Damage(segment.path, reason, rows))


def find_owner(
    folder: Path, named: bytes | None, inventory: Inventory | None
) -> bytes | None:
    """Id of the store that the segments of a folder belong to, if there is one.

    named: the id in the folder's metadata. Where no segment has this id, the metadata
    is itself the foreign file if the inventory says so or, in folders without one,
    several segments.
    """
    stores = collections.Counter(_owners(seg_files(folder)))
    listed = inventory.store if inventory else None
    if named is not None and (not stores or named in stores or named == listed):
        return named
    if listed is not None and (not stores or listed in stores):
        return listed
    common, count = stores.most_common(1)[0] if stores else (None, 0)
    return named if named is not None and count < 2 else common


def list_segments(path: Path) -> list[Path]:
    """Segment files of a folder by number."""
    return [p for p in seg_files(path) if number_of(p) is not None]


def seg_files(path: Path) -> list[Path]:
    """All files that look like segments, also those under other names."""
    return sorted(p for p in path.glob('*' + SUFFIX) if p.is_file())


def number_of(path: Path) -> int | None:
    """Number in the name of a file, also of a copy; None without one."""
    digits = path.stem[:8]
    return int(digits) if len(digits) == 8 and digits.isdecimal() else None


def _well_named(segment: Segment) -> bool:
    assert segment.path is not None
    return segment.path.stem == f'{segment.spec.number:08d}'


def _owners(paths: Iterable[Path]) -> list[bytes]:
    """Store ids of the readable segments."""
    found = []
    for path in paths:
        try:
            found.append(bytes.fromhex(read_spec(path).store))
        except (BadSegment, OSError, ValueError):
            continue  # reported when it is opened to be used
    return found
