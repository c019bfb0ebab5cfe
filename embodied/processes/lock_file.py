"""Lock file: lets one process at a time work in a folder, and says which one does."""

import fcntl
import os
import weakref
from pathlib import Path

__all__ = ['Held', 'LockFile']

MAX_BYTES = 4096  # of a record


class Held(Exception):
    """Another process holds the lock. record: what it has written about itself."""

    def __init__(self, record: bytes) -> None:
        super().__init__(record)
        self.record = record


class LockFile:
    """An exclusive lock, until `release` or the end of this object or process.

    The kernel releases the lock of a process that dies. The file stays: after it was
    removed, two processes could hold locks on different files of its name.
    """

    def __init__(self, path: Path) -> None:
        """Raises Held if another process has the lock, OSError as `open` does."""
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        self.release = weakref.finalize(self, os.close, self._fd)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            record = self.read()
            self.release()
            raise Held(record) from None

    def read(self) -> bytes:
        """The record of the last holder; empty if there is none."""
        return os.pread(self._fd, MAX_BYTES, 0)

    def write(self, record: bytes) -> None:
        """Replaces the record, which may be cut by a crash."""
        # In place: a file of another name would have a lock of its own.
        os.pwrite(self._fd, record, 0)
        os.ftruncate(self._fd, len(record))
        os.fsync(self._fd)
