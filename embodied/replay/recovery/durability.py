"""Durability: keeps the stored steps of a replay on the disk, whole and checked."""

import threading
from collections.abc import Callable

import numpy as np

from ..storage.checksums import is_full
from ..storage.segment import Segment
from ..storage.store import Store
from .damage import Damage
from .folder import Folder, quarantine
from .scrubber import Scrubber
from .syncer import Syncer, sync_segments

__all__ = ['Durability']


class Durability:
    """Syncs segments, writes and verifies checksums, and collects what is damaged.

    folder: of the files, None if the steps are in memory. lock: guards the store.
    on_exclude: called, with the lock held, after a chunk was taken out of the store.
    sync: 'ack' leaves it to the caller to sync before each answer. sync_every: seconds
    between syncs by a thread; 0: none.
    """

    def __init__(
        self,
        store: Store,
        folder: Folder | None,
        lock: threading.RLock,
        on_exclude: Callable[[], None],
        sync: str,
        sync_every: float,
    ):
        self._store = store
        self._folder = folder
        self._lock = lock
        self._on_exclude = on_exclude
        self._damages = list(folder.damages) if folder else []
        self.sync_first = folder is not None and sync == 'ack'
        self._scrubber = self._scrub() if store.allocator.on_disk else None
        self._syncer = None
        if folder and sync_every > 0:
            self._syncer = Syncer(self._sync_in_turn, sync_every)

    def sync(self) -> None:
        """Makes all steps so far survive a loss of power."""
        with self._lock:
            dirty = [s for s in self._store.allocator.segments.values() if s.dirty]
        sync_segments(dirty, self._lock)
        if self._folder and dirty:
            self._folder.inventory.sync()
            self._folder.sync()

    def seal_filled(self) -> None:
        """Gives checksums, in the background, to the chunks that are full since the
        last call."""
        if self._store.filled:
            if self._scrubber:
                self._scrubber.put(self._store.filled)
            self._store.filled = []

    def finish_checks(self) -> None:
        """Waits until all full chunks so far have their checksums or are verified."""
        if self._scrubber:
            self._scrubber.finish()

    def take_damages(self) -> list[Damage]:
        """What was found to be wrong with the files since the last call."""
        with self._lock:
            damages, self._damages = self._damages, []
        return damages

    def close(self) -> None:
        """Syncs, latents included, and gives the folder back."""
        if self._syncer:
            self._syncer.close()
        if self._scrubber:
            self._scrubber.put(x for x in self._store.tails() if is_full(*x))
            self._scrubber.close()
        if self._folder:
            segments = self._store.allocator.segments
            try:
                sync_segments([s for s in segments.values() if s.writable], self._lock)
                self._write_inventory(self._folder)
                self._folder.inventory.sync()
                self._folder.note_end()
            finally:
                self._folder.close()

    def _sync_in_turn(self) -> None:
        if self._folder and not self.sync_first:
            self._write_inventory(self._folder, dirty_only=True)
        self.sync()

    def _write_inventory(self, folder: Folder, dirty_only: bool = False) -> None:
        with self._lock:
            folder.inventory.count(self._store.allocator.segments, dirty_only)
            folder.inventory.next_order = self._store.next_order
            folder.inventory.write()

    def _scrub(self) -> Scrubber:
        scrubber = Scrubber(self._condemn)
        for segment in self._store.allocator.segments.values():
            slots = np.flatnonzero(segment.usable()).tolist()
            full = [(segment, slot) for slot in slots if is_full(segment, slot)]
            scrubber.put(full, earlier=True)
        return scrubber

    def _condemn(self, segment: Segment, slot: int) -> None:
        """Excludes a chunk whose columns fail their checksum."""
        assert segment.path is not None
        with self._lock:
            steps = self._store.exclude(segment, slot)
            if not steps:
                return
            segment.retire(slot)
            self._on_exclude()
            reason = 'the chunk fails its checksum; it is not served any more'
            damage = Damage(segment.path, reason, steps, slot)
            allocator, number = self._store.allocator, segment.spec.number
            used = segment.live or allocator.is_filling(segment)
            if self._folder and segment.writable and not used:
                allocator.forget(number)
                damage = quarantine(self._folder.path, damage)
            self._damages.append(damage)
        damage.report()
