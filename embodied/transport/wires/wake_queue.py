"""Wake queue: hands items from any thread to one thread that blocks in a poll."""

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
    late `put` must not write into a descriptor that was given to somebody else.
    """

    def __init__(self) -> None:
        self._items: collections.deque[Any] = collections.deque()
        self._rung = False
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
        """Adds an item and wakes the owner."""
        self._items.append(item)
        # The owner lowers the flag before it empties the queue: whoever finds it
        # raised can rely on the owner seeing the item just added.
        if not self._rung:
            self._rung = True
            os.write(self._writer, ONE)

    def take(self) -> list[Any]:
        """Everything that was put so far. Only the owner calls this."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._reader, 8)
        self._rung = False
        items = []
        while self._items:
            items.append(self._items.popleft())
        return items
