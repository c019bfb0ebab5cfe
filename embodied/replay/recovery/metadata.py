"""Metadata of a replay folder: its owner, its step ids, whether it was closed."""

import dataclasses
import json
import os
from pathlib import Path

from embodied.core.errors import ReplayError
from embodied.core.outside import read_plain

__all__ = ['CARD', 'BadCard', 'Card', 'fsync', 'new_id', 'was_closed']

CARD = 'replay.json'
FORMAT = 2
ID_HALF = 8  # bytes
LARGEST = 4096  # bytes of a card


class BadCard(Exception):
    """The file is not a card of this format; says why."""


@dataclasses.dataclass(frozen=True)
class Card:
    """store: id that every segment repeats. prefix: begins the ids of all steps.
    clean: everything is on the disk, and nobody has written since.
    """

    store: bytes
    prefix: bytes
    clean: bool = False

    @classmethod
    def read(cls, folder: Path) -> 'Card':
        """Card of a folder; FileNotFoundError if it has none."""
        try:
            data = json.loads(read_plain(folder / CARD, LARGEST))
            if data['format'] != FORMAT:
                raise BadCard(f'it has format {data["format"]}, not {FORMAT}')
            ids = bytes.fromhex(data['store']), bytes.fromhex(data['prefix'])
            if [len(x) for x in ids] != [ID_HALF, ID_HALF]:
                raise BadCard('its ids do not have the length of ids')
            return cls(*ids, bool(data['clean']))
        except FileNotFoundError:
            raise
        except (ValueError, KeyError, TypeError, OSError) as error:
            raise BadCard('it is not the card of a replay') from error

    def write(self, folder: Path) -> None:
        """Replaces the card of a folder; either the old or the new one is there."""
        data = {
            'format': FORMAT,
            'store': self.store.hex(),
            'prefix': self.prefix.hex(),
            'clean': self.clean,
        }
        draft = folder / 'replay.tmp'
        try:
            draft.write_text(json.dumps(data))
            fsync(draft)
            draft.rename(folder / CARD)
            fsync(folder)
        except OSError as error:
            raise ReplayError(
                f'Replay cannot write to {folder}: {error.strerror}. What is stored '
                f'stays valid. Free some space, or set replay.dir to another disk.'
            ) from error

    def change(self, **values: bytes | bool) -> 'Card':
        return dataclasses.replace(self, **values)  # type: ignore[arg-type]


def new_id() -> bytes:
    return os.urandom(ID_HALF)


def was_closed(folder: Path) -> bool:
    """Whether the last writer of a folder left it in order."""
    try:
        return Card.read(folder).clean
    except (BadCard, FileNotFoundError):
        return False


def fsync(path: Path) -> None:
    """Makes a file, or the names in a folder, survive a loss of power."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
