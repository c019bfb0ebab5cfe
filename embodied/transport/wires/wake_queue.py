"""Wake queue: passes items from any thread to one thread that blocks in a poll."""

import collections
import contextlib
import os
from typing import Any

__all__ = ['WakeQueue']

ONE = (1).to_bytes(8, 'little')


class WakeQueue:
    """A queue whose file descriptor is readable while items wait.

    `put` takes no lock, so it is safe in finalizers, which may run at any point of
    any thread. The descriptor is closed with the last reference, never earlier: a
    late `put` must not write into another file that was given the same number.
    """

    def __init__(self) -> None:
        self._items: collections.deque[Any] = collections.deque()
        self._signaled = False
        if hasattr(os, 'eventfd'):
            self._reader = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            self._writer = self._reader
        else:
            self._reader, self._writer = os.pipe()
            os.set_blocking(self._reader, False)
            os.set_blocking(self._writer, False)

    def __del__(self) -> None:
        os.close(self._reader)
        if self._writer != self._reader:
            os.close(self._writer)

    def fileno(self) -> int:
        return self._reader

    def put(self, item: Any) -> None:
        """Adds an item and wakes the owner, the thread that polls."""
        self._items.append(item)
        # The owner clears the flag before it empties the queue: while the flag is set,
        # the owner will still see the item just added.
        if not self._signaled:
            self._signaled = True
            os.write(self._writer, ONE)

    def take(self) -> list[Any]:
        """Removes and returns all items. Only the owner calls it."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._reader, 8)
        self._signaled = False
        items = []
        while self._items:
            items.append(self._items.popleft())
        return items
