"""Logs of a run's roles: which there are, their ends, and what is added to them."""

import codecs
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from .folders import Run, plain_files
from .run_files import open_plain, printable

__all__ = ['LogFollower', 'Part', 'logs', 'read_log']

FOLDER = 'logs'
ENDINGS = ('.log', '.log.1')  # the second is what came before
LAST_BYTES = 1 << 17  # at the end of a log that a page begins with
MOST_BYTES = 1 << 20  # that are sent at once
LARGEST = 64 << 20  # bytes of a log that is sent as a whole
# Colors and movements of a terminal, and the returns of its progress bars.
STEERING = re.compile(
    r'\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b.'
)
RETURNS = re.compile(r'\r+\n?')


def logs(run: Run) -> list[dict[str, Any]]:
    """The logs of a run, by name."""
    found = [
        {'file': printable(name), 'bytes': info.st_size, 'time': info.st_mtime}
        for name, info in plain_files(run.path / FOLDER)
        if name.endswith(ENDINGS)
    ]
    return sorted(found, key=lambda item: str(item['file']))


def read_log(run: Run, file: str) -> bytes:
    """The newest bytes of a log, as they are."""
    with open_plain(run.path / FOLDER / file) as found:
        if not found:
            return b''
        start = max(0, os.fstat(found.fileno()).st_size - LARGEST)
        return b''.join(_blocks(found.fileno(), start))[:LARGEST]


class Part(NamedTuple):
    """A part of a log.

    first: whether it replaces what was there: at the beginning, or as the file is
    another one now. skipped: bytes of the file before it that were left out.
    """

    text: str
    first: bool
    skipped: int


class LogFollower:
    """Reads a log from near its end, and then what is added to it."""

    def __init__(self, path: Path):
        self._path = path
        self._identity: tuple[int, int] | None = None
        self._offset = 0
        self._decoder = codecs.getincrementaldecoder('utf-8')('replace')

    def more(self) -> Part | None:
        """What has been added since the last call; None if nothing has."""
        with open_plain(self._path) as file:
            if not file:
                return None
            info = os.fstat(file.fileno())
            identity = (info.st_dev, info.st_ino)
            first = identity != self._identity or info.st_size < self._offset
            if first:
                self._identity = identity
                self._offset = max(0, info.st_size - LAST_BYTES)
                self._decoder.reset()
            skipped = self._offset if first else 0
            data = os.pread(file.fileno(), MOST_BYTES, self._offset)
        self._offset += len(data)
        if skipped:  # begins with a whole line
            cut = data.find(b'\n') + 1
            data, skipped = data[cut:], skipped + cut
        text = self._decoder.decode(data)
        return Part(_plain(text), first, skipped) if text or first else None


def _plain(text: str) -> str:
    return printable(RETURNS.sub('\n', STEERING.sub('', text)))


def _blocks(fd: int, offset: int) -> Iterator[bytes]:
    while data := os.pread(fd, MOST_BYTES, offset):
        yield data
        offset += len(data)
