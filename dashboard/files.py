"""Files of a run, opened with suspicion: plain ones inside of the folder, in parts.

A run's folder may be written right now, half written, or made by somebody else. Links,
pipes and devices are not followed, sizes are bounded, and what is not JSON is None.
"""

import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

__all__ = ['last_lines', 'open_plain', 'parse_object', 'printable', 'read_object']

LARGEST_OBJECT = 1 << 20  # bytes of a JSON file that is read as a whole


@contextmanager
def open_plain(path: str | os.PathLike) -> Iterator[BinaryIO | None]:
    """The file for reading, None where there is no plain file of this name."""
    # Without O_NONBLOCK, opening a pipe would wait for somebody to write into it.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        fd = os.open(path, flags)
    except (OSError, ValueError):  # missing, a link, not ours to read, a NUL in it
        yield None
        return
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        yield None
        return
    with os.fdopen(fd, 'rb', buffering=0) as file:
        yield file


def parse_object(line: bytes) -> dict[str, Any] | None:
    """The JSON object of a line; None for anything else."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):  # broken, not UTF-8, or nested a million times
        return None
    return value if isinstance(value, dict) else None


def read_object(path: Path) -> dict[str, Any] | None:
    """The JSON object that is a whole, small file."""
    with open_plain(path) as file:
        data = file.read(LARGEST_OBJECT) if file else b''
    return parse_object(data or b'')


def last_lines(path: Path, limit: int) -> list[dict[str, Any]]:
    """The objects among the whole lines in the last `limit` bytes of a file."""
    with open_plain(path) as file:
        if not file:
            return []
        start = max(0, os.fstat(file.fileno()).st_size - limit)
        data = os.pread(file.fileno(), limit, start)
    lines = data.split(b'\n')[(1 if start else 0) : -1]
    return [found for line in lines if (found := parse_object(line)) is not None]


def printable(text: str) -> str:
    """The text without the halves of characters that cannot be encoded."""
    return text.encode('utf-8', 'replace').decode()
