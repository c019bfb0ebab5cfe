"""Metadata of a replay folder: its owner, its step ids, whether it was closed."""

import dataclasses
import json
import os
from pathlib import Path

from embodied.core.errors import ReplayError
from embodied.core.files import write_whole
from embodied.core.outside import read_plain

__all__ = ['METADATA', 'BadMetadata', 'Metadata', 'new_id', 'was_closed']

METADATA = 'replay.json'
FORMAT = 2
ID_HALF = 8  # bytes
LARGEST = 4096  # bytes of the file


class BadMetadata(Exception):
    """The file does not hold metadata of this format; the message says why."""


@dataclasses.dataclass(frozen=True)
class Metadata:
    """store: id that every segment repeats. prefix: begins the ids of all steps.
    clean: everything is on the disk, and no process has written since.
    """

    store: bytes
    prefix: bytes
    clean: bool = False

    @classmethod
    def read(cls, folder: Path) -> 'Metadata':
        """Metadata of a folder; FileNotFoundError if it has none."""
        try:
            data = json.loads(read_plain(folder / METADATA, LARGEST))
            if data['format'] != FORMAT:
                raise BadMetadata(f'it has format {data["format"]}, not {FORMAT}')
            ids = bytes.fromhex(data['store']), bytes.fromhex(data['prefix'])
            if [len(x) for x in ids] != [ID_HALF, ID_HALF]:
                raise BadMetadata('its ids do not have the length of ids')
            return cls(*ids, bool(data['clean']))
        except FileNotFoundError:
            raise
        except (ValueError, KeyError, TypeError, OSError) as error:
            raise BadMetadata('it is not the metadata of a replay') from error

    def write(self, folder: Path) -> None:
        """Replaces the metadata of a folder; either the old or the new one is there."""
        data = {
            'format': FORMAT,
            'store': self.store.hex(),
            'prefix': self.prefix.hex(),
            'clean': self.clean,
        }
        try:
            write_whole(folder / METADATA, json.dumps(data))
        except OSError as error:
            raise ReplayError(
                f'Replay cannot write to {folder}: {error.strerror}. What is stored '
                f'stays valid. Free some space, or set replay.dir to another disk.'
            ) from error

    def change(self, **values: bytes | bool) -> 'Metadata':
        return dataclasses.replace(self, **values)  # type: ignore[arg-type]


def new_id() -> bytes:
    return os.urandom(ID_HALF)


def was_closed(folder: Path) -> bool:
    """Whether the last writer of a folder left it in order."""
    try:
        return Metadata.read(folder).clean
    except (BadMetadata, FileNotFoundError):
        return False
