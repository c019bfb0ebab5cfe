"""Strangers: TCP connections of a ZeroMQ socket whose peers have not said hello.

ZeroMQ ends connections without a handshake, but has no call that ends one after it. It
tells the descriptor of each connection, though, and when it is about to close it. So a
duplicate of the descriptor can be shut down, which ZeroMQ takes for the peer's end.
"""

import contextlib
import math
import os
import socket
import time
from collections.abc import Callable

__all__ = ['Strangers']

MOST = 512  # at a time; the oldest gives way


class Strangers:
    """Connections by descriptor, with the times until which they may say hello.

    catch_up: reads all events of the socket, which call `came` and `left`.
    """

    def __init__(self, patience: float, catch_up: Callable[[], None]) -> None:
        self._patience = patience
        self._catch_up = catch_up
        self._until: dict[int, float] = {}

    @property
    def due(self) -> float:
        """When the next one has had its time."""
        if len(self._until) > MOST:
            return 0.0
        # They all have as much time, so the oldest comes first.
        return next(iter(self._until.values()), math.inf)

    def came(self, fd: int) -> None:
        self._until[fd] = time.monotonic() + self._patience

    def left(self, fd: int) -> None:
        """The connection is about to be closed, or has said hello."""
        self._until.pop(fd, None)

    def hang_up(self, now: float) -> int:
        """Ends those that are due, and the oldest of too many; returns how many."""
        count = 0
        while self.due <= now:
            fd, due = next(iter(self._until.items()))
            count += self._end(fd, due)
            self._until.pop(fd, None)
        return count

    def _end(self, fd: int, due: float) -> bool:
        try:
            copy = socket.socket(fileno=os.dup(fd))
        except OSError:  # It is closed already.
            return False
        with copy:
            # Unless its end is announced by now, the duplicate is of this connection
            # and not of another one that was given the same number.
            self._catch_up()
            if self._until.get(fd) != due:
                return False
            with contextlib.suppress(OSError):  # The peer was faster.
                copy.shutdown(socket.SHUT_RDWR)
        return True
