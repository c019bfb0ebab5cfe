"""Shared line: a client's line that its threads use one at a time.

Whoever waits for a message reads the line until it is there, and then passes the role
on. Handing every call to an I/O thread and back would cost two context switches more.
"""

import logging
import threading
import time
from collections.abc import Callable

from .addresses import Address
from .codec.frames import Message, unpack
from .errors import MessageError
from .wires.wake_queue import WakeQueue
from .wires.wire import ClientConnection

__all__ = ['SharedReader']

log = logging.getLogger(__name__)


class SharedReader:
    """A line with its lock.

    `handle` is called with the lock for every message. All methods but `block` and
    `watch` need the lock, too.
    """

    def __init__(
        self, line: ClientConnection, handle: Callable[[Message], None]
    ) -> None:
        self.lock = threading.Lock()
        self.watched = False  # a keeper sleeps on this line and must not miss a signal
        self.malformed = 0
        self._line = line
        self._handle = handle
        self._changed = threading.Condition(self.lock)
        self._reading = False  # a thread sleeps on the line without the lock
        self._followers = 0  # threads that wait for the one that reads
        self._closed = False

    @property
    def endpoint(self) -> str:
        return self._line.endpoint

    def block(
        self,
        done: Callable[[], bool],
        timeout: float | None,
        then: Callable[[], None] | None = None,
    ) -> bool:
        """Waits, reading the line if nobody else does; `then` runs in the lock."""
        deadline = None if timeout is None else time.monotonic() + timeout
        with self.lock:
            try:
                while not done():
                    left = None if deadline is None else deadline - time.monotonic()
                    if self._reading:
                        if left is not None and left <= 0:
                            return False
                        self._follow(left)
                    elif not self._read(left):
                        return False
                if then is not None:
                    then()
            finally:
                if self._followers:
                    self._changed.notify()  # One of them is the reader now.
        return True

    def tell(self) -> None:
        """Something changed that others may wait for."""
        if self._followers:
            self._changed.notify_all()
        if self._reading:
            self._line.wake()

    def catch_up(self) -> None:
        """Handles what arrived, if others sleep on the line.

        To be called after sending on a line that swallows signals to them.
        """
        if self._reading or self.watched:
            self.pump()

    def pump(self) -> None:
        """Handles all messages that have arrived."""
        while self._receive():
            pass

    def watch(self, mail: WakeQueue, messages: bool, timeout: float | None) -> None:
        """Blocks until the line needs a `look`, mail arrives or time is up.

        With `messages`, also until a message arrives, unless another thread reads.
        """
        self._line.watch(mail, messages and not self._reading, timeout)

    def look(self) -> None:
        """Lets the line do what is due; may raise Refused."""
        self._line.look()

    def reconnect(self) -> None:
        self._line.reconnect()

    def move(self, address: Address) -> None:
        self._line.move(address)

    def close(self) -> None:
        self._closed = True
        self._line.close()

    def _read(self, left: float | None) -> bool:
        """Handles a message or sleeps until something happens; False out of time."""
        if self._line.swallows_signals and self._receive():
            return True
        if left is not None and left <= 0:
            return self._receive()
        self._reading = True
        try:
            self.lock.release()
            self._line.wait(left)
        finally:
            self.lock.acquire()
            self._reading = False
        self._receive()
        return True

    def _receive(self) -> bool:
        """Handles what has arrived, at least one message; False when nothing has."""
        messages = [] if self._closed else self._line.receive()
        for frames in messages:
            try:
                self._handle(unpack(frames))
            except MessageError as e:
                self.malformed += 1
                log.warning('Malformed message from %s: %s', self.endpoint, e)
        return bool(messages)

    def _follow(self, timeout: float | None) -> None:
        """Waits for the thread that reads."""
        self._followers += 1
        try:
            self._changed.wait(timeout)
        finally:
            self._followers -= 1
