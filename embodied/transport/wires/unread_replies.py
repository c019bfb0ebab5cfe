"""Unread replies: how many bytes ZeroMQ keeps for a client that does not read them."""

import collections
from typing import Any

import zmq

__all__ = ['UnreadReplies']

OVERHEAD = 256  # bytes of a message besides its content
TRACK_EVERY = 2**20  # bytes to one client; trackers are slow


class UnreadReplies:
    """Trackers of what was sent to one client."""

    def __init__(self) -> None:
        self._untracked = 0
        self._unsent: collections.deque[tuple[int, Any]] = collections.deque()

    def count(self, frames: list) -> bool:
        """Counts bytes to be sent; returns whether to track their message."""
        self._untracked += sum(map(len, frames)) + OVERHEAD
        return self._untracked >= TRACK_EVERY

    def track(self, tracker: zmq.MessageTracker) -> int:
        """Adds a tracker; returns the bytes that have not left this process."""
        self._unsent.append((self._untracked, tracker))
        self._untracked = 0
        while self._unsent and self._unsent[0][1].done:
            self._unsent.popleft()
        return sum(nbytes for nbytes, _ in self._unsent)
