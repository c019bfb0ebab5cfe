"""Scrubber: writes checksums of full chunks and verifies those of earlier processes.

It works in a thread of its own. After a restart it rests most of the time, so that
sampling has the disk, the caches and the processors for itself.
"""

import queue
import threading
import time
import weakref
from collections.abc import Callable, Iterable

from . import checksums
from .segment import Segment

__all__ = ['REST', 'Scrubber']

REST = 3.0  # seconds for each second of work on what an earlier process wrote


class Scrubber:
    """Calls `condemn(segment, slot)`, a method of its owner, for chunks that fail.

    It holds the owner weakly: a replay that is out of use gives its folder back.
    """

    def __init__(self, condemn: Callable[[Segment, int], None]):
        self._tasks: queue.SimpleQueue = queue.SimpleQueue()
        self._hurry, self._closing = threading.Event(), threading.Event()
        self._condemn = weakref.WeakMethod(condemn, lambda _: self._end())
        self._thread = threading.Thread(
            target=self._run, name='replay-scrub', daemon=True
        )
        self._thread.start()

    def put(self, chunks: Iterable[tuple[Segment, int]], rest: float = 0.0) -> None:
        """Full chunks: those with checksums are verified, the others get some."""
        for segment, slot in chunks:
            self._tasks.put((segment, slot, rest))

    def finish(self) -> None:
        """Waits until all chunks put so far are done; nothing rests any more."""
        done = threading.Event()
        self._tasks.put(done)
        self._hurry.set()
        done.wait()

    def close(self) -> None:
        """Ends when all chunks of this process have checksums; leaves the others."""
        self._end()
        self._thread.join()

    def _end(self) -> None:
        self._closing.set()
        self._hurry.set()
        self._tasks.put(None)

    def _run(self) -> None:
        while (task := self._tasks.get()) is not None:
            if isinstance(task, threading.Event):
                task.set()
                continue
            segment, slot, rest = task
            began = time.monotonic()
            late = rest and self._closing.is_set()
            if segment.live and not late:  # and not evicted meanwhile
                self._scrub(segment, slot)
            del task, segment
            self._hurry.wait(rest * (time.monotonic() - began))

    def _scrub(self, segment: Segment, slot: int) -> None:
        if not checksums.is_sealed(segment, slot):
            if checksums.can_seal(segment, slot):
                checksums.seal(segment, slot)
        elif not checksums.values_match(segment, slot):
            condemn = self._condemn()
            if condemn is not None:
                condemn(segment, slot)
