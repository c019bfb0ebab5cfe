"""Lock of a run's folder: one process at a time, and who it is."""

import datetime
import fcntl
import json
import os
from pathlib import Path
from types import TracebackType
from typing import Any

from ..core.errors import ConfigError
from ..core.files import storage_errors
from .identity import Identity

__all__ = ['FolderLock']

NAME = 'lock'
MAX_BYTES = 4096  # of the owner's record


class FolderLock:
    """Context in which nobody else runs in `folder`; a second one is refused by name.

    The kernel releases the lock of a process that dies, so a stale one cannot stand
    in the way. `epoch` numbers the holders of a folder.

    nested: whoever calls us may have made sure of the folder already.
    """

    def __init__(self, folder: str | os.PathLike, nested: bool = False):
        self._folder = Path(folder)
        self._nested = nested
        self._fd = -1
        self.epoch = 0

    def __enter__(self) -> 'FolderLock':
        path = self._folder / NAME
        try:
            with storage_errors(self._folder):
                self._folder.mkdir(parents=True, exist_ok=True)
                self._fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise ConfigError(
                f'Cannot create logdir {self._folder}: {error.strerror}.'
            ) from error
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            owner = _read(self._fd)
            self._release()
            if not self._nested or Identity.read(owner) != Identity.of():
                raise ConfigError(
                    f'{self._folder} is in use by process {owner.get("pid", "?")} on '
                    f'{owner.get("host", "?")} since {owner.get("start", "?")}. '
                    'Stop it first, or choose another --logdir.'
                ) from error
            self.epoch = _epoch(owner)
            return self
        self.epoch = _epoch(_read(self._fd)) + 1
        try:
            with storage_errors(self._folder):
                self._sign()
        except Exception:
            self._release()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._release()

    def _sign(self) -> None:
        now = datetime.datetime.now().isoformat(sep=' ', timespec='seconds')
        owner = {**Identity.of()._asdict(), 'start': now, 'epoch': self.epoch}
        data = json.dumps(owner).encode()
        # In place: a file of another name would have a lock of its own. Half a record
        # is as good as none.
        os.pwrite(self._fd, data, 0)
        os.ftruncate(self._fd, len(data))
        os.fsync(self._fd)

    def _release(self) -> None:
        # The file stays: removing it would let two others hold locks on different
        # files of this name.
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _read(fd: int) -> dict[str, Any]:
    """The record of the last owner; {} if there is none, or only half of it."""
    try:
        record = json.loads(os.pread(fd, MAX_BYTES, 0))
        Identity.read(record)
    except (ValueError, TypeError, AttributeError):
        return {}
    return record


def _epoch(owner: dict[str, Any]) -> int:
    epoch = owner.get('epoch')
    return epoch if isinstance(epoch, int) else 0
