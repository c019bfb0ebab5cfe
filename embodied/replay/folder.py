"""Folder of segment files: one writer at a time, broken files set aside.

replay.json    id of the store, beginning of its step ids, whether it was closed
lock           held by the process that writes; names it
00000000.seg   segments, numbered in the order of their creation
00000001.new   a segment that is being made; without rows
aside/         files that could not be read, kept for a person to look at
"""

import collections
import fcntl
import logging
import os
import resource
import socket
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from embodied.core.errors import FolderInUseError, ReplayError

from .card import CARD, BadCard, Card, fsync, new_id
from .segment import BadSegment, Segment

__all__ = [
    'Folder',
    'boot_id',
    'find_folder',
    'list_segments',
    'local_path',
    'need_descriptors',
]

log = logging.getLogger(__name__)

SUFFIX = '.seg'
BOOT_ID = Path('/proc/sys/kernel/random/boot_id')
SPARE_DESCRIPTORS = 256  # for everything in the process that is not a segment
NETWORK = {
    *('nfs', 'nfs4', 'cifs', 'smb3', 'smbfs', '9p', 'afs', 'ceph', 'fuse.sshfs'),
    *('glusterfs', 'fuse.glusterfs', 'lustre', 'beegfs', 'gpfs', 'fuse.gcsfuse'),
}


class Folder:
    """A folder that this process alone writes to, until `close`."""

    def __init__(self, path: Any):
        self.path = local_path(path)
        self.path.mkdir(parents=True, exist_ok=True)
        self._lock = _Lock(self.path)
        for leftover in self.path.glob('*.new'):
            leftover.unlink()
        self._card = self._read_card()
        kind = file_system(self.path)
        if kind in NETWORK:
            log.warning(
                'The replay folder %s lies on a network file system (%s): mapped files '
                'are slow there and may be lost with the connection. Set replay.dir to '
                'a local disk.',
                self.path,
                kind,
            )

    @property
    def card(self) -> Card:
        return self._card

    def note_loss(self) -> None:
        """Makes all ids given out so far stale: new rows may take lost places."""
        self._keep(self._card.change(prefix=new_id()))

    def note_use(self) -> None:
        """From now on the disk may lag behind the memory."""
        if self._card.clean:
            self._keep(self._card.change(clean=False))

    def note_end(self) -> None:
        """Everything is on the disk."""
        self._keep(self._card.change(clean=True))

    def open_segments(self) -> list[Segment]:
        """All readable segments, oldest first; the others are set aside."""
        paths = list_segments(self.path)
        need_descriptors(len(paths))
        segments = []
        for path in paths:
            try:
                segment = Segment.open(path, writable=True)
                if segment.spec.store != self._card.store.hex():
                    raise BadSegment('it belongs to another replay')
                if path.stem != f'{segment.spec.number:08d}':
                    raise BadSegment(f'it is a copy of number {segment.spec.number}')
                segments.append(segment)
            except BadSegment as error:
                # First: after a crash in between, nobody would know of the loss.
                self.note_loss()
                self._put_aside(path, str(error))
        return segments

    def next_number(self) -> int:
        """A number above those of all segments there ever were."""
        paths = list_segments(self.path) + list_segments(self.path / 'aside')
        return max((int(path.stem[:8]) for path in paths), default=-1) + 1

    def sync(self) -> None:
        """Makes the names of the files survive a loss of power."""
        fsync(self.path)

    def close(self) -> None:
        self._lock.release()

    def _read_card(self) -> Card:
        try:
            return Card.read(self.path)
        except FileNotFoundError:
            pass
        except BadCard as error:
            self._put_aside(self.path / CARD, str(error))
        # Segments without a card, such as now: most of them say whose they are.
        stores = collections.Counter(_owners(self.path))
        store = bytes.fromhex(max(stores, key=stores.__getitem__)) if stores else None
        return self._keep(Card(store or new_id(), new_id()))

    def _keep(self, card: Card) -> Card:
        card.write(self.path)
        self._card = card
        return card

    def _put_aside(self, path: Path, reason: str) -> None:
        home = self.path / 'aside'
        home.mkdir(exist_ok=True)
        target = home / path.name
        while target.exists():
            target = target.with_name(target.stem + '-again' + target.suffix)
        path.rename(target)
        log.warning('Replay file %s set aside as %s: %s.', path, target, reason)


def find_folder(path: Path) -> Path:
    """The folder itself, or the replay folder of a run's folder."""
    for candidate in (path, path / 'replay'):
        if list_segments(candidate) or (candidate / CARD).exists():
            return candidate
    raise ReplayError(
        f'There is no replay in {path} nor in {path / "replay"}. If replay.dir was '
        f'set, name that folder.'
    )


def list_segments(path: Path) -> list[Path]:
    """Segment files of a folder by number."""
    paths = (p for p in path.glob('*' + SUFFIX) if p.is_file())
    return sorted(p for p in paths if p.stem[:8].isdigit())


def local_path(path: Any) -> Path:
    text = str(path)
    if '://' in text:
        raise ReplayError(
            f'The replay folder {text} is not on a local disk, so its files cannot be '
            f'mapped to memory. Set replay.dir to a local folder.'
        )
    return Path(text).expanduser()


def boot_id() -> str:
    """Changes when the machine starts anew, and only then."""
    if BOOT_ID.exists():
        return BOOT_ID.read_text().strip()
    return f'boot-{int(psutil.boot_time())}'


def file_system(path: Path) -> str:
    """Type of the file system that holds a path, such as ext4 or nfs4."""
    real = str(path.resolve())
    best, kind = '', ''
    for part in psutil.disk_partitions(all=True):
        mount = part.mountpoint.rstrip('/') + '/'
        if (real + '/').startswith(mount) and len(mount) > len(best):
            best, kind = mount, part.fstype
    return kind


def need_descriptors(count: int) -> None:
    """Raises the soft limit for so many more files; every mapped segment is one."""
    needed = psutil.Process().num_fds() + count + SPARE_DESCRIPTORS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= needed or soft == resource.RLIM_INFINITY:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise ReplayError(
            f'Replay needs about {needed} open files, but the hard limit here is '
            f'{hard}. Raise it (ulimit -Hn), or lower replay.size or replay.max_gb.'
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def _owners(path: Path) -> Iterator[str]:
    """Store ids of the readable segments."""
    for file in list_segments(path):
        try:
            yield Segment.open(file, writable=False).spec.store
        except BadSegment:
            continue  # set aside, with a message, when it is opened to be used


class _Lock:
    """Exclusive lock of a folder; ends with `release`, this object or the process."""

    def __init__(self, path: Path):
        fd = os.open(path / 'lock', os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(fd, 1000).decode() or 'another process'
            os.close(fd)
            raise FolderInUseError(
                f'The replay folder {path} is being written by {holder}. Stop that run '
                f'or choose another folder with replay.dir.'
            ) from None
        os.truncate(fd, 0)
        os.pwrite(fd, f'process {os.getpid()} on {socket.gethostname()}'.encode(), 0)
        self.release = weakref.finalize(self, os.close, fd)
