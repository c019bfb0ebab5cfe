"""Logs of the roles: one file each, whose size is bounded whatever a role prints.

    logs/agent.log    at most MAX_BYTES
    logs/agent.log.1  what came before, at most as much again

A role writes into a pipe, and a thread of the process that started it writes the file.
So no output of any program below the role can pass by the bound, and what is in the
pipe when the role dies still reaches the file. A role waits when the pipe is full: if
it prints faster than the disk takes it, or while its launcher is suspended.
"""

import contextlib
import logging
import math
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

__all__ = [
    'FAILURE_LINE',
    'MAX_BYTES',
    'START_LINE',
    'Incomplete',
    'LogWriter',
    'Logs',
    'last_lines',
]

log = logging.getLogger(__name__)

MAX_BYTES = 16 << 20  # of a file
BLOCK = 1 << 16  # bytes at once, which is what a pipe holds
START_LINE = '--- The role starts'  # begins what each process of a role writes
FAILURE_LINE = 'The role fails:'  # above an exception that the launcher knows already
LAST_LINES = 10  # that are shown when a role has failed for good
LAST_BYTES = 1 << 16
RECOVERED = 60.0  # seconds of writes that succeed, after which one is reported again


class Incomplete:
    """Reports writes that fail, since a full disk does not end the supervision: once,
    however many files it concerns, until all have succeeded for a while.

    On a full disk some writes succeed, because others that fail give room back.
    """

    def __init__(self, recovered: float = RECOVERED) -> None:
        self._lock = threading.Lock()
        self._recovered = recovered
        self._failed = -math.inf  # time of the last failure

    @contextlib.contextmanager
    def outlasting(self, path: Path) -> Iterator[None]:
        """Context of a write to `path`; an OSError is logged instead of raised."""
        try:
            yield
        except OSError as error:
            now = time.monotonic()
            with self._lock:
                known = now - self._failed < self._recovered
                self._failed = now
            if known:
                return
            log.warning(
                'Cannot write to %s: %s. Logs, events and status stay incomplete '
                'until that works again.',
                path,
                error.strerror,
            )


class Logs:
    """Where the logs are."""

    def __init__(self, folder: Path):
        self.folder = folder

    def path(self, name: str) -> Path:
        return self.folder / f'{name}.log'


class LogWriter:
    """Appends what a process writes into the pipe to a file, from `start` to `close`.

    first: what the file gets before that.
    incomplete: shared with other files, so that a full disk is reported once for all.
    """

    def __init__(
        self,
        path: Path,
        first: bytes = b'',
        max_bytes: int = MAX_BYTES,
        incomplete: Incomplete | None = None,
    ):
        self._path = path
        self._incomplete = incomplete or Incomplete()
        self._max_bytes = max_bytes
        self._lock = threading.Lock()  # of the file
        self._closed = False
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self._open()
        self._keep(first)
        try:
            self._reader, self._pipe = os.pipe()
        except OSError:  # too many
            os.close(self._file)
            raise
        self._thread = threading.Thread(
            target=self._work, name=f'log-{path.stem}', daemon=True
        )

    def fileno(self) -> int:
        """The end of the pipe for a process that is about to be started."""
        return self._pipe

    def start(self) -> None:
        """After the process was started or has failed to."""
        os.close(self._pipe)  # Only the copies of the process count.
        self._thread.start()

    def close(self, timeout: float) -> None:
        """Returns when all is in the file: when those that hold the pipe have ended,
        or after that many seconds, from which on their output is dropped."""
        self._thread.join(timeout)
        with self._lock:
            self._closed = True
            os.close(self._file)

    def _work(self) -> None:
        block = min(BLOCK, self._max_bytes)
        while data := os.read(self._reader, block):
            with self._lock:
                if not self._closed:
                    self._keep(data)
        os.close(self._reader)

    def _keep(self, data: bytes) -> None:
        """A full disk must not hold up the role: what cannot be written is dropped."""
        with self._incomplete.outlasting(self._path):
            self._write(data)

    def _write(self, data: bytes) -> None:
        if self._size and self._size + len(data) > self._max_bytes:
            self._rotate()
        while data:
            written = os.write(self._file, data)
            self._size += written
            data = data[written:]

    def _open(self) -> int:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        fd = os.open(self._path, flags, 0o644)
        self._size = os.fstat(fd).st_size
        return fd

    def _rotate(self) -> None:
        if self._path.exists():  # unless a user has removed it
            self._path.replace(self._path.with_suffix(f'{self._path.suffix}.1'))
        old, self._file = self._file, self._open()
        os.close(old)


def last_lines(path: Path) -> list[str]:
    """The end of a log: what the last process wrote before its exception."""
    try:
        with path.open('rb') as file:
            file.seek(max(0, path.stat().st_size - LAST_BYTES))
            text = file.read().decode(errors='replace')
    except OSError as error:
        return [f'(unreadable: {error.strerror})']
    _, begins, own = text.rpartition(START_LINE)
    own = own.partition('\n')[2] if begins else text
    before, known, _ = own.rpartition(f'{FAILURE_LINE}\n')
    lines = (before if known else own).splitlines()
    return lines[-LAST_LINES:] or ['(nothing but the error)' if known else '(nothing)']
