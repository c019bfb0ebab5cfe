"""Files and texts from outside: plain files of bounded size, texts without controls.

A run's folder may be written right now, half written, or come from another user. Links,
pipes and devices are not followed, sizes are bounded, and what is not JSON is None.
"""

import errno
import json
import os
import stat
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

__all__ = [
    'last_lines',
    'open_plain',
    'parse_object',
    'printable',
    'read_object',
    'read_plain',
    'shown',
]

LARGEST_OBJECT = 1 << 20  # bytes of a JSON file that is read as a whole
LONGEST_TEXT = 10_000  # characters of one text in a terminal
# Control characters, those that change the direction of a text, halves of characters
# and code points without a meaning; lines and paragraphs also have separators.
UNSAFE = ('Cc', 'Cf', 'Cs', 'Co', 'Cn', 'Zl', 'Zp')
KEPT = '\n\t'


@contextmanager
def open_plain(
    path: str | os.PathLike, follow: bool = False
) -> Iterator[BinaryIO | None]:
    """The file for reading, None where there is no plain file of this name.

    follow: a link to a plain file counts as one.
    """
    # Without O_NONBLOCK, opening a pipe would wait for a process that writes into it.
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
    flags |= 0 if follow else os.O_NOFOLLOW
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


def read_plain(path: str | os.PathLike, limit: int) -> bytes:
    """The content of a plain file, or of one that a link leads to; OSError if there is
    none, or if it is larger than `limit`."""
    with open_plain(path, follow=True) as file:
        if file is None:
            os.stat(path)  # raises what is the matter if it is missing
            raise OSError(errno.EINVAL, 'not a plain file', str(path))
        with os.fdopen(os.dup(file.fileno()), 'rb') as whole:
            data = whole.read(limit + 1)
    if len(data) > limit:
        raise OSError(errno.EFBIG, f'larger than {limit} bytes', str(path))
    return data


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


def shown(text: Any, keep: str = KEPT) -> str:
    """The text as a terminal may print it: what would steer the terminal, or reorder
    what it shows, is spelled out. `keep` lists control characters that stay."""
    whole = str(text)
    start = whole[:LONGEST_TEXT]
    if not (start.isascii() and start.isprintable()):
        start = ''.join(c if c in keep else _spelled(c) for c in start)
    rest = len(whole) - LONGEST_TEXT
    return f'{start}... ({rest} more characters)' if rest > 0 else start


def _spelled(char: str) -> str:
    if unicodedata.category(char) in UNSAFE:
        return char.encode('unicode_escape', 'surrogatepass').decode('ascii')
    return char
