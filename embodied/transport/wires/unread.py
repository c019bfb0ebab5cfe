"""Unread: how many bytes ZeroMQ keeps for a peer that does not read them."""

import collections
from typing import Any

import zmq

__all__ = ['Unread']

OVERHEAD = 256  # bytes of a message besides its content
TRACK_EVERY = 2**20  # bytes to one peer; trackers are slow


class Unread:
    """Trackers of what was sent to one peer."""

    def __init__(self) -> None:
        self._untracked = 0
        self._unsent: collections.deque[tuple[int, Any]] = collections.deque()

    def count(self, frames: list) -> bool:
        """Counts bytes to be sent; whether their message should be tracked."""
        self._untracked += sum(map(len, frames)) + OVERHEAD
        return self._untracked >= TRACK_EVERY

    def track(self, tracker: zmq.MessageTracker) -> int:
        """Remembers a tracker; returns the bytes that did not leave yet."""
        self._unsent.append((self._untracked, tracker))
        self._untracked = 0
        while self._unsent and self._unsent[0][1].done:
            self._unsent.popleft()
        return sum(nbytes for nbytes, _ in self._unsent)
