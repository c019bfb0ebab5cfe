"""Shared socket: a client's socket that its threads use one at a time.

Whoever waits for a message reads the socket until it is there, and then passes the
role on. Handing every call to an I/O thread and back would cost two context switches
more, a third of the throughput of small calls.
"""

import logging
import select
import threading
import time
from collections.abc import Callable

import zmq

from . import security, sockets
from .addresses import Address
from .errors import MessageError
from .interface import Settings
from .keys import ClientKeys
from .mailbox import Mailbox
from .wire import Parcel, unpack

__all__ = ['SharedSocket']

log = logging.getLogger(__name__)

EVENTS = zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED
LINGER = 500  # milliseconds for the last messages when closing


class SharedSocket:
    """A DEALER socket with its lock.

    `handle` is called with the lock for every message. All methods but `block` and
    `wait_for_events` need the lock, too.
    """

    def __init__(
        self,
        address: Address,
        keys: ClientKeys | None,
        settings: Settings,
        handle: Callable[[Parcel], None],
    ) -> None:
        local = address.ipc if address.loopback and not address.direct else None
        self.endpoint = local or address.tcp
        self.lock = threading.Lock()
        self.watched = False  # others sleep on this socket and must not miss a signal
        self.malformed = 0
        self._handle = handle
        self._changed = threading.Condition(self.lock)
        self._reading = False  # a thread sleeps on the socket without the lock
        self._followers = 0  # threads that wait for the one that reads
        self._mail = Mailbox()
        self._context = zmq.Context()
        self._sock = self._context.socket(zmq.DEALER)
        sockets.configure(self._sock, settings)
        if keys and not local:
            security.encrypt_client(self._sock, keys)
        self._monitor = self._sock.get_monitor_socket(EVENTS)
        self._signal = sockets.descriptor(self._sock)
        self._mail_event = (self._mail.fileno(), select.POLLIN)
        self._poller = select.poll()
        self._poller.register(self._signal, select.POLLIN)
        self._poller.register(self._mail.fileno(), select.POLLIN)
        self._sock.connect(self.endpoint)

    def block(
        self,
        done: Callable[[], bool],
        timeout: float | None,
        then: Callable[[], None] = lambda: None,
    ) -> bool:
        """Waits, reading the socket if nobody else does; `then` runs in the lock."""
        deadline = None if timeout is None else time.monotonic() + timeout
        with self.lock:
            try:
                while not done():
                    if not self._reading and self._receive():
                        continue
                    left = None if deadline is None else deadline - time.monotonic()
                    if left is not None and left <= 0:
                        return False
                    if self._reading:
                        self._follow(left)
                    else:
                        self._sleep(left)
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
            self._mail.put(None)

    def send(self, frames: list) -> bool:
        """False when the connection is gone; its successor will send again."""
        try:
            sockets.send(self._sock, frames)
        except zmq.Again:
            # Perhaps ZeroMQ has not taken note of the new connection yet.
            if not self._sock.poll(0, zmq.POLLOUT):
                return False
            sockets.send(self._sock, frames)
        return True

    def catch_up(self) -> None:
        """Handles what arrived, if others sleep on the socket.

        To be called after sending, which may have swallowed the signal to them.
        """
        if self._reading or self.watched:
            self.pump()

    def pump(self) -> None:
        """Handles all messages that have arrived."""
        while self._receive():
            pass

    def wait_for_events(self, mailbox: Mailbox, messages: bool, timeout: int) -> None:
        """Blocks until the connection changes, mail arrives or time is up.

        With `messages`, also until a message arrives, unless another thread reads.
        """
        items: list = [(self._monitor, zmq.POLLIN), (mailbox.fileno(), zmq.POLLIN)]
        if messages and not self._reading:
            items.append((self._signal, zmq.POLLIN))
        zmq.zmq_poll(items, timeout)

    def next_event(self) -> int | None:
        """What happened to the connection, if something did."""
        event = sockets.next_event(self._monitor)
        return event and event[0]

    def reconnect(self) -> None:
        self._sock.disconnect(self.endpoint)
        self._sock.connect(self.endpoint)

    def close(self) -> None:
        self._sock.disable_monitor()
        self._context.destroy(linger=LINGER)

    def _receive(self) -> bool:
        """Handles one message, if one has arrived.

        Whoever is about to sleep calls this until it returns False: any use of the
        socket may have swallowed the signal of its descriptor.
        """
        if self._sock.closed or not sockets.readable(self._sock):
            return False
        frames = sockets.receive(self._sock, head=1)
        try:
            self._handle(unpack(frames))
        except MessageError as e:
            self.malformed += 1
            log.warning('Malformed message from %s: %s', self.endpoint, e)
        return True

    def _follow(self, timeout: float | None) -> None:
        """Waits for the thread that reads."""
        self._followers += 1
        try:
            self._changed.wait(timeout)
        finally:
            self._followers -= 1

    def _sleep(self, timeout: float | None) -> None:
        """Blocks without the lock until something happens to the socket."""
        self._reading = True
        self.lock.release()
        try:
            milliseconds = None if timeout is None else 1000 * timeout
            ready = self._poller.poll(milliseconds)
        finally:
            self.lock.acquire()
            self._reading = False
        if self._mail_event in ready:
            self._mail.take()
