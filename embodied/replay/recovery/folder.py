"""Folder of segment files: one writer at a time, unusable files in quarantine.

replay.json    id of the store, beginning of its step ids, whether it was closed
segments.json  which segments there are, and how many steps each holds
lock           held by the process that writes; names it
00000000.seg   segments, numbered in the order of their creation
00000001.new   a segment that is being made; without rows
quarantine/    files that cannot be used, kept for inspection
"""

import dataclasses
import logging
import os
import resource
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import psutil

from embodied.core.errors import FolderInUseError, ReplayError
from embodied.core.files import sync_path

from ...processes.lock_file import Held, LockFile
from ..storage.segment import Segment
from .damage import Damage
from .inventory import INVENTORY, BadInventory, Inventory
from .metadata import METADATA, BadMetadata, Metadata, new_id
from .survey import Survey, find_owner, list_segments, number_of

__all__ = [
    'Folder',
    'boot_id',
    'find_folder',
    'list_segments',
    'local_path',
    'need_descriptors',
    'quarantine',
]

log = logging.getLogger(__name__)

QUARANTINE = 'quarantine'
ASIDE = 'aside'  # its name in version 0.1.0
BOOT_ID = Path('/proc/sys/kernel/random/boot_id')
SPARE_DESCRIPTORS = 256  # for everything in the process that is not a segment
NETWORK = {
    *('nfs', 'nfs4', 'cifs', 'smb3', 'smbfs', '9p', 'afs', 'ceph', 'fuse.sshfs'),
    *('glusterfs', 'fuse.glusterfs', 'lustre', 'beegfs', 'gpfs', 'fuse.gcsfuse'),
}


class Folder:
    """A folder that this process alone writes to, until `close`.

    damages: what was found to be wrong. before: the inventory of the last process, if
    there is one. inventory: that of this process.
    """

    def __init__(self, path: Any):
        self.path = local_path(path)
        self.path.mkdir(parents=True, exist_ok=True)
        self._lock = _lock(self.path)
        for leftover in self.path.glob('*.new'):
            leftover.unlink()
        self.damages: list[Damage] = []
        self.before = self._read_inventory()
        self._metadata = self._read_metadata()
        self.inventory = Inventory(self.path, self._metadata.store)
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
    def metadata(self) -> Metadata:
        return self._metadata

    def note_loss(self) -> None:
        """Makes all ids given out so far stale: new rows may take lost places."""
        self._keep(self._metadata.change(prefix=new_id()))

    def note_use(self) -> None:
        """Marks the folder as in use: the disk may lag behind the memory."""
        if self._metadata.clean:
            self._keep(self._metadata.change(clean=False))

    def note_end(self) -> None:
        """Marks the folder as closed: everything is on the disk."""
        self._keep(self._metadata.change(clean=True))

    def open_segments(self) -> list[Segment]:
        """All usable segments, oldest first; the others go to the quarantine."""
        need_descriptors(len(list_segments(self.path)))
        survey = Survey(self.path, self._metadata.store, writable=True)
        bad, missing = survey.damages(self.before)
        # First: after a crash in between, the loss would go unnoticed.
        self.note(missing, bad)
        for damage in bad:
            self._report(quarantine(self.path, damage))
        self._rename(survey.misnamed)
        self.inventory.rows = dict.fromkeys(survey.segments, 0)
        self.inventory.next_number = self._next_number()
        return list(survey.segments.values())

    def note(self, damages: Iterable[Damage], more: Iterable[Damage] = ()) -> None:
        """Reports `damages`; makes ids stale if these, or `more`, lose steps."""
        damages = list(damages)
        if any(damage.loses_steps for damage in (*damages, *more)):
            self.note_loss()
        for damage in damages:
            self._report(damage)

    @property
    def has_gaps(self) -> bool:
        """Whether steps are gone, so that what follows does not follow the rest."""
        return any(damage.loses_steps for damage in self.damages)

    def sync(self) -> None:
        """Makes the names of the files survive a loss of power."""
        sync_path(self.path)

    def close(self) -> None:
        self._lock.release()

    def _read_inventory(self) -> Inventory | None:
        try:
            return Inventory.read(self.path)
        except FileNotFoundError:
            return None
        except BadInventory as error:
            damage = Damage(self.path / INVENTORY, str(error), 0)
            self._report(quarantine(self.path, damage))
            return None

    def _read_metadata(self) -> Metadata:
        metadata, path = None, self.path / METADATA
        try:
            metadata = Metadata.read(self.path)
        except FileNotFoundError:
            if self.before or list_segments(self.path):
                self._report(Damage(path, 'it is missing; a new one is made', 0))
        except BadMetadata as error:
            self._report(quarantine(self.path, Damage(path, str(error), 0)))
        owner = find_owner(self.path, metadata.store if metadata else None, self.before)
        foreign = 'it belongs to another replay'
        if self.before and self.before.store != owner:
            damage = Damage(self.path / INVENTORY, foreign, 0)
            self._report(quarantine(self.path, damage))
            self.before = None
        if metadata is not None and metadata.store != owner:
            self._report(quarantine(self.path, Damage(path, foreign, 0)))
            metadata = None
        return metadata or self._keep(Metadata(owner or new_id(), new_id()))

    def _next_number(self) -> int:
        """A number above those of all segments that ever existed."""
        homes = self.path, self.path / QUARANTINE, self.path / ASIDE
        paths = [path for home in homes for path in list_segments(home)]
        numbers = [number_of(path) or 0 for path in paths]
        known = self.before.next_number if self.before else 0
        return max([known, *(number + 1 for number in numbers)])

    def _rename(self, segments: list[Segment]) -> None:
        """Renames segments to their numbers, also where two have swapped names."""
        moves = [(x, x.path, f'{x.spec.number:08d}') for x in segments]
        for suffix in ('-moved.seg', '.seg'):
            for segment, _, stem in moves:
                assert segment.path is not None
                segment.path = segment.path.rename(self.path / (stem + suffix))
        for segment, path, _ in moves:
            assert path is not None and segment.path is not None
            reason = f'it was under a wrong name; renamed to {segment.path.name}'
            self._report(Damage(path, reason, 0))

    def _keep(self, metadata: Metadata) -> Metadata:
        metadata.write(self.path)
        self._metadata = metadata
        return metadata

    def _report(self, damage: Damage) -> None:
        self.damages.append(damage)
        damage.report()


def quarantine(folder: Path, damage: Damage) -> Damage:
    """Moves a file that cannot be used to the quarantine; returns the damage with its
    new path."""
    home = folder / QUARANTINE
    home.mkdir(exist_ok=True)
    target = home / damage.path.name
    while target.exists():
        target = target.with_name(target.stem + '-again' + target.suffix)
    damage.path.rename(target)
    reason = f'{damage.reason}; moved to {QUARANTINE}/{target.name}'
    return dataclasses.replace(damage, reason=reason)


def find_folder(path: Path) -> Path:
    """The folder itself, or the replay folder of a run's folder."""
    for candidate in (path, path / 'replay'):
        if list_segments(candidate) or (candidate / METADATA).exists():
            return candidate
    raise ReplayError(
        f'There is no replay in {path} nor in {path / "replay"}. If replay.dir was '
        f'set, name that folder.'
    )


def local_path(path: Any) -> Path:
    text = str(path)
    if '://' in text:
        raise ReplayError(
            f'The replay folder {text} is not on a local disk, so its files cannot be '
            f'mapped to memory. Set replay.dir to a local folder.'
        )
    return Path(text).expanduser()


def boot_id() -> str:
    """Id of the current boot of the machine."""
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
    """Raises the soft limit of open files by `count`; a mapped segment is one file."""
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


def _lock(path: Path) -> LockFile:
    """The lock of a folder; raises FolderInUseError if another process has it."""
    try:
        lock = LockFile(path / 'lock')
    except Held as held:
        holder = held.record.decode(errors='replace') or 'another process'
        raise FolderInUseError(
            f'The replay folder {path} is being written by {holder}. Stop that run '
            f'or choose another folder with replay.dir.'
        ) from None
    lock.write(f'process {os.getpid()} on {socket.gethostname()}'.encode())
    return lock
