"""Shared reader: a client's connection, read by its threads one at a time.

A thread that waits for a message reads the connection until the message is there. Then
another waiting thread continues. To pass each call to an I/O thread and back would cost
two more context switches.
"""

import logging
import threading
import time
from collections.abc import Callable

from .codec.frames import Message, unpack
from .errors import MessageError
from .wires.connection import ClientConnection

__all__ = ['SharedReader']

log = logging.getLogger(__name__)


class SharedReader:
    """The current connection, if there is one, and the lock of the client.

    `handle` is called with the lock for every message, and `lose` when receiving shows
    that the connection is lost. All methods but `block` need the lock.
    """

    def __init__(
        self, name: str, handle: Callable[[Message], None], lose: Callable[[], None]
    ) -> None:
        self.lock = threading.Lock()
        self.connection: ClientConnection | None = None
        self.reading = False  # a thread waits for messages, without the lock
        self.watched = False  # the keeper waits for messages, too
        self._name = name
        self._handle = handle
        self._lose = lose
        self._changed = threading.Condition(self.lock)
        self._followers = 0  # threads that wait until another one has read

    def attach(self, connection: ClientConnection) -> None:
        """Reads this connection from now on."""
        assert self.connection is None
        self.connection = connection
        self.notify()

    def detach(self) -> None:
        """Closes the connection, if there is one; callers wait for the next one."""
        if self.connection is not None:
            connection, self.connection = self.connection, None
            connection.wake()
            connection.close()

    def block(
        self,
        done: Callable[[], bool],
        timeout: float | None,
        then: Callable[[], None] | None = None,
    ) -> bool:
        """Waits until `done()`, then calls `then` with the lock; False after `timeout`.

        Reads the connection unless another thread does.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        with self.lock:
            try:
                while not done():
                    left = None if deadline is None else deadline - time.monotonic()
                    connection = self.connection
                    if self.reading or connection is None:
                        if left is not None and left <= 0:
                            return False
                        self._follow(left)
                    elif not self._read(connection, left):
                        return False
                if then is not None:
                    then()
            finally:
                if self._followers:
                    self._changed.notify()  # One of them is the reader now.
        return True

    def notify(self) -> None:
        """Makes the threads in `block` call their `done`."""
        if self._followers:
            self._changed.notify_all()
        if self.reading and self.connection is not None:
            self.connection.wake()

    def catch_up(self) -> None:
        """Handles what has arrived, if other threads wait for it.

        To be called after sending, which may have cleared their signal.
        """
        if self.reading or self.watched:
            self.pump()

    def pump(self) -> None:
        """Handles all messages that have arrived."""
        while self._receive():
            pass

    def _read(self, connection: ClientConnection, left: float | None) -> bool:
        """Handles a message or waits until something happens; False out of time."""
        if connection.swallows_signals and self._receive():
            return True
        if left is not None and left <= 0:
            return self._receive()
        self.reading = True
        try:
            self.lock.release()
            connection.wait(left)
        finally:
            self.lock.acquire()
            self.reading = False
        self._receive()
        return True

    def _receive(self) -> bool:
        """Handles what has arrived, at least one message; False if nothing has."""
        connection = self.connection
        if connection is None:
            return False
        messages = connection.receive()
        for frames in messages:
            try:
                self._handle(unpack(frames))
            except MessageError as e:
                log.warning('%s received a malformed message: %s', self._name, e)
        if connection.lost and not messages and connection is self.connection:
            self._lose()
        return bool(messages)

    def _follow(self, timeout: float | None) -> None:
        """Waits until the thread that reads, or `attach`, notifies."""
        self._followers += 1
        try:
            self._changed.wait(timeout)
        finally:
            self._followers -= 1
