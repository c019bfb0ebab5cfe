"""Pending handshakes: TCP connections of a ZeroMQ socket without our handshake.

ZeroMQ closes connections that do not finish its own handshake in time, but has no call
that closes one later. It reports the descriptor of each connection, though, and when it
is about to close it. So a duplicate of the descriptor can be shut down, which ZeroMQ
takes for the other end's doing.
"""

import contextlib
import math
import os
import socket
import time
from collections.abc import Callable

__all__ = ['PendingHandshakes']

MOST = 512  # at a time; the oldest is closed


class PendingHandshakes:
    """Connections by descriptor, each with the time at which it is closed.

    seconds: until then. catch_up: reads all events of the socket, and calls `add` and
    `remove` for them.
    """

    def __init__(self, seconds: float, catch_up: Callable[[], None]) -> None:
        self._seconds = seconds
        self._catch_up = catch_up
        self._due: dict[int, float] = {}

    @property
    def due(self) -> float:
        """When the next connection is to be closed, as time.monotonic()."""
        if len(self._due) > MOST:
            return 0.0
        # They all have as much time, so the oldest comes first.
        return next(iter(self._due.values()), math.inf)

    def add(self, fd: int) -> None:
        self._due[fd] = time.monotonic() + self._seconds

    def remove(self, fd: int) -> None:
        """The handshake is done, or the connection is about to be closed."""
        self._due.pop(fd, None)

    def close_due(self, now: float) -> int:
        """Closes those that are due, and the oldest of too many; returns how many."""
        count = 0
        while self.due <= now:
            fd, due = next(iter(self._due.items()))
            count += self._shut_down(fd, due)
            self._due.pop(fd, None)
        return count

    def _shut_down(self, fd: int, due: float) -> bool:
        try:
            duplicate = socket.socket(fileno=os.dup(fd))
        except OSError:  # It is closed already.
            return False
        with duplicate:
            # Unless its end has been reported by now, the duplicate is of this
            # connection and not of another one that was given the same number.
            self._catch_up()
            if self._due.get(fd) != due:
                return False
            with contextlib.suppress(OSError):  # The other end was faster.
                duplicate.shutdown(socket.SHUT_RDWR)
        return True
