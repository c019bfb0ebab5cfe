"""Scrubber: writes checksums of full chunks and verifies those of earlier processes.

It works in a thread of its own and rests most of the time, so that inserting and
sampling have the disk, the caches and the processors for themselves.
"""

import queue
import threading
import time
import weakref
from collections.abc import Callable, Iterable

from ..storage import checksums
from ..storage.segment import Segment

__all__ = ['Scrubber']

# Seconds of rest for each second of work: on what this process wrote, where a tenth of
# a processor keeps up with 100 MB/s at least and bursts are made up for later, and on
# what an earlier one wrote, which should be known soon.
REST, REST_EARLIER = 9.0, 3.0


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

    def put(self, chunks: Iterable[tuple[Segment, int]], earlier: bool = False) -> None:
        """Full chunks: those with checksums are verified, the others get some.

        earlier: they are of an earlier process, and may wait for the next one.
        """
        for segment, slot in chunks:
            self._tasks.put((segment, slot, earlier))

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
            segment, slot, earlier = task
            began = time.monotonic()
            late = earlier and self._closing.is_set()
            if segment.live and not late:  # and not evicted meanwhile
                self._scrub(segment, slot)
            del task, segment
            rest = REST_EARLIER if earlier else REST
            self._hurry.wait(rest * (time.monotonic() - began))

    def _scrub(self, segment: Segment, slot: int) -> None:
        if not checksums.is_sealed(segment, slot):
            if checksums.can_seal(segment, slot):
                checksums.seal(segment, slot)
        elif not checksums.values_match(segment, slot):
            condemn = self._condemn()
            if condemn is not None:
                condemn(segment, slot)
