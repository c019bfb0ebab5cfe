"""Small files of a run: replaced whole, synced, sealed against bit rot, set aside."""

import contextlib
import errno
import json
import os
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from .errors import StorageError
from .outside import LARGEST_OBJECT, read_plain

__all__ = [
    'FULL',
    'TEMPORARY',
    'is_full',
    'overwrite',
    'read_sealed',
    'seal',
    'set_aside',
    'storage_errors',
    'sync_path',
    'why_unreadable',
    'write_whole',
]

TEMPORARY = '.tmp-'  # begin the names of what is being written
ASIDE = '.bad'  # ends the names of files that could not be read
BLOCK = 512  # bytes, the unit of st_blocks
SEAL = 'checksum'  # key of a sealed record
# Numbers of errors that only the user can remove: no room, no quota, no permission.
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG)
# This user may not use the file, or a folder has taken its place.
REFUSED = (errno.EACCES, errno.EPERM, errno.EISDIR, errno.ENOTDIR)


def write_whole(path: Path, text: str, sync: bool = True) -> None:
    """Replaces a small file; after any crash the old or the new one is there.

    sync: also after a loss of power.
    """
    temporary = path.with_name(f'{TEMPORARY}{path.name}')
    try:
        with temporary.open('wb') as file:
            file.write(text.encode())
            file.flush()
            if sync:
                os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        # Half a file is of no use, and takes room on a disk that may be full.
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    if sync:
        sync_path(path.parent)


def overwrite(path: Path, text: str) -> None:
    """Writes into the blocks that a file has already, which works on a full disk.

    Raises OSError if there is not enough of it. A crash in between spoils the file.
    """
    data = text.encode()
    with path.open('r+b') as file:
        if len(data) > os.fstat(file.fileno()).st_blocks * BLOCK:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        file.write(data)
        file.truncate()
        file.flush()
        os.fsync(file.fileno())


def sync_path(path: Path) -> None:
    """Makes a file, or the names in a folder, survive a loss of power."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def set_aside(path: Path) -> Path:
    """Renames a file that cannot be read, and returns its new path."""
    target = path.with_name(f'{path.name}{ASIDE}')
    path.replace(target)
    return target


def seal(record: Mapping[str, Any]) -> dict[str, Any]:
    """The record with a checksum of its other fields."""
    return {**record, SEAL: _checksum(record)}


def read_sealed(path: Path, unsealed: frozenset[str]) -> dict[str, Any]:
    """A JSON record without its seal; raises OSError or ValueError if it is damaged.

    unsealed: the fields of records of version 0.1.0, which had no seal. A record with
    exactly these fields is taken as it is.
    """
    record = json.loads(read_plain(path, LARGEST_OBJECT))
    if not isinstance(record, dict):
        raise ValueError('it is no record')
    if record.keys() == unsealed:
        return record
    if record.pop(SEAL, None) != _checksum(record):
        raise ValueError('it does not match its checksum')
    return record


def is_full(error: BaseException | None) -> bool:
    """Whether the disk refuses writes for a reason that lasts, such as being full."""
    return isinstance(error, OSError) and error.errno in FULL


@contextlib.contextmanager
def storage_errors(folder: str | os.PathLike) -> Iterator[None]:
    """Turns the errors of a full disk, and of files in `folder` that cannot be used,
    into one that tells the user what to do.

    folder: what is written to, if the error does not name a file.
    """
    try:
        yield
    except OSError as error:
        path = error.filename or folder
        if is_full(error):
            todo = f'Make room on the disk of {folder}'
        elif error.errno in REFUSED and _is_inside(error.filename, folder):
            todo = 'Give this user the right to write there, or move away what is there'
        else:
            raise
        raise StorageError(
            f'Cannot write to {path}: {error.strerror}. {todo}, or choose another '
            '--logdir; then the same command goes on.'
        ) from error


def why_unreadable(error: Exception) -> str:
    """The type and text of an error, without the bytes that it is about."""
    return f'{type(error).__name__}: {error}'


def _is_inside(path: Any, folder: str | os.PathLike) -> bool:
    named = isinstance(path, str | os.PathLike)
    return named and Path(path).absolute().is_relative_to(Path(folder).absolute())


def _checksum(record: Mapping[str, Any]) -> str:
    text = json.dumps(record, sort_keys=True, separators=(',', ':'))
    return f'{zlib.crc32(text.encode()):08x}'
