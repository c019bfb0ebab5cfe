"""Lock of a run's folder: one process at a time, and who it is."""

import datetime
import json
import os
from pathlib import Path
from typing import Any

from ..core.errors import ConfigError
from ..core.files import storage_errors
from .lock_file import Held, LockFile
from .process_identity import ProcessIdentity

__all__ = ['FolderLock']

NAME = 'lock'


class FolderLock:
    """Context in which no other process runs in `folder`; a second one is refused,
    with the name of the first.

    The kernel releases the lock of a process that dies. `epoch` numbers the holders of
    a folder.

    nested: this process may hold the lock already.
    """

    def __init__(self, folder: str | os.PathLike, nested: bool = False):
        self._folder = Path(folder)
        self._nested = nested
        self._file: LockFile | None = None
        self.epoch = 0

    def __enter__(self) -> 'FolderLock':
        try:
            with storage_errors(self._folder):
                self._folder.mkdir(parents=True, exist_ok=True)
                self._file = LockFile(self._folder / NAME)
        except Held as held:
            owner = _parse(held.record)
            if not self._nested or ProcessIdentity.read(owner) != ProcessIdentity.of():
                raise self._refusal(owner) from None
            self.epoch = _epoch(owner)
            return self
        except OSError as error:
            raise ConfigError(
                f'Cannot create logdir {self._folder}: {error.strerror}.'
            ) from error
        self.epoch = _epoch(_parse(self._file.read())) + 1
        try:
            with storage_errors(self._folder):
                self._sign(self._file)
        except Exception:
            self._release()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self._release()

    def _refusal(self, owner: dict[str, Any]) -> ConfigError:
        return ConfigError(
            f'{self._folder} is in use by process {owner.get("pid", "?")} on '
            f'{owner.get("host", "?")} since {owner.get("start", "?")}. '
            'Stop it first, or choose another --logdir.'
        )

    def _sign(self, file: LockFile) -> None:
        now = datetime.datetime.now().isoformat(sep=' ', timespec='seconds')
        owner = {**ProcessIdentity.of()._asdict(), 'start': now, 'epoch': self.epoch}
        file.write(json.dumps(owner).encode())

    def _release(self) -> None:
        if self._file is not None:
            self._file.release()
            self._file = None


def _parse(data: bytes) -> dict[str, Any]:
    """The record of the last owner; {} if there is none, or only half of it."""
    try:
        record = json.loads(data)
        ProcessIdentity.read(record)
    except (ValueError, TypeError, AttributeError):
        return {}
    return record


def _epoch(owner: dict[str, Any]) -> int:
    epoch = owner.get('epoch')
    return epoch if isinstance(epoch, int) else 0
