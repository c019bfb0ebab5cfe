"""Identity of processes and folders: tells them from others with the same name."""

import os
import platform
import time
from pathlib import Path
from typing import Any, NamedTuple

import psutil

__all__ = ['FolderIdentity', 'ProcessIdentity', 'uptime']

BOOT_ID = Path('/proc/sys/kernel/random/boot_id')
START_FIELD = 19  # of /proc/PID/stat behind the name: ticks from boot to start


class ProcessIdentity(NamedTuple):
    """Where and since when a process runs; no two processes have the same."""

    host: str
    boot: str  # of the machine
    pid: int
    started: float  # in a unit that jumps of the clock do not change

    @classmethod
    def of(cls, pid: int | None = None) -> 'ProcessIdentity':
        """Identity of a process on this machine, by default of this one.

        Raises ProcessLookupError if the process is gone.
        """
        pid = os.getpid() if pid is None else pid
        return cls(platform.node(), _boot(), pid, _started(pid))

    @classmethod
    def read(cls, record: dict[str, Any]) -> 'ProcessIdentity':
        """From a record, which may come from any program."""
        return cls(
            str(record.get('host', '?')),
            str(record.get('boot', '?')),
            int(record.get('pid', 0)),
            float(record.get('started', 0)),
        )

    @property
    def local(self) -> bool:
        """Whether it lives, or has lived, on this machine."""
        return self.host == platform.node()

    @property
    def alive(self) -> bool | None:
        """None if it is on another machine, where we cannot look."""
        if not self.local:
            return None
        if self.boot != _boot():
            return False
        try:
            return _started(self.pid) == self.started
        except ProcessLookupError:
            return False


class FolderIdentity(NamedTuple):
    """A folder that stays the same when it is renamed; a copy of it is another one."""

    device: int
    inode: int

    @classmethod
    def of(cls, path: str | os.PathLike) -> 'FolderIdentity':
        found = os.stat(path)
        return cls(found.st_dev, found.st_ino)

    @classmethod
    def read(cls, record: Any) -> 'FolderIdentity | None':
        """From a record that anything may have written; None if it says nothing."""
        try:
            return cls(int(record['device']), int(record['inode']))
        except (KeyError, TypeError, ValueError):
            return None


def uptime() -> float:
    """Seconds since the machine was booted, sleep included, whatever the clock says."""
    clock = getattr(time, 'CLOCK_BOOTTIME', time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)


def _boot() -> str:
    return BOOT_ID.read_text().strip() if BOOT_ID.exists() else ''


def _started(pid: int) -> float:
    stat = Path(f'/proc/{pid}/stat')
    if not BOOT_ID.exists():  # not Linux
        try:
            return psutil.Process(pid).create_time()
        except psutil.NoSuchProcess as error:
            raise ProcessLookupError(pid) from error
    try:
        fields = stat.read_text().rpartition(')')[2].split()
    except (FileNotFoundError, ProcessLookupError):
        raise ProcessLookupError(pid) from None
    if fields[0] in 'ZX':  # ended, and its exit code was not asked for
        raise ProcessLookupError(pid)
    return float(fields[START_FIELD])
