"""Unix line: a client's way to a server on the same host."""

import select
import sys
import time
from collections.abc import Callable

from ..addresses import Address
from ..codec.frames import MAX_HEAD
from ..errors import MessageError, Refused
from ..interface import Settings
from . import unix_socket
from .stream import SCRATCH, Stream
from .wake_queue import WakeQueue
from .wire import ClientConnection

__all__ = ['UnixClientConnection']

FIRST_RETRY, LAST_RETRY = 0.02, 0.5  # seconds between attempts to connect
RDHUP = getattr(select, 'POLLRDHUP', 0)  # tells that the peer left; Linux only


class UnixClientConnection(ClientConnection):
    """Connects while there is no connection, whenever `look` is called in time.

    Unless `anybody`, the server must belong to the user of this process: another one
    could have taken the address.
    """

    def __init__(
        self,
        address: Address,
        anybody: bool,
        settings: Settings,
        on_change: Callable[[bool], None],
    ) -> None:
        self.endpoint = address.text
        self.on_change = on_change
        self._address = address
        self._anybody = anybody
        self._limit = settings.max_message + MAX_HEAD
        self._stream: Stream | None = None
        self._scratch = memoryview(bytearray(SCRATCH))
        self._mail = WakeQueue()
        self._mail_event = (self._mail.fileno(), select.POLLIN)
        self._poller = self._make_poller()
        self._retry = FIRST_RETRY
        self._due = 0.0  # next attempt

    def send(self, frames: list) -> bool:
        stream = self._stream
        if stream is None or not stream.send(frames):
            return False
        if stream.unsent:
            self.unsent = True
        return True

    def receive(self) -> list[list]:
        # A read may end in the middle of a message.
        while (stream := self._stream) is not None:
            try:
                if messages := stream.receive(self._scratch):
                    return messages
            except (EOFError, MessageError):
                self._lose()
            except BlockingIOError:
                break
        return []

    def wait(self, timeout: float | None) -> None:
        ready = self._poller.poll(None if timeout is None else 1000 * timeout)
        if self._mail_event in ready:
            self._mail.take()

    def wake(self) -> None:
        self._mail.put(None)

    def watch(self, mail: WakeQueue, messages: bool, timeout: float | None) -> None:
        poller, stream = select.poll(), self._stream
        poller.register(mail.fileno(), select.POLLIN)
        if stream is None:
            left = max(0.0, self._due - time.monotonic())
            timeout = left if timeout is None else min(timeout, left)
        else:
            events = RDHUP | (select.POLLIN if messages else 0)
            events |= select.POLLOUT if stream.unsent else 0
            poller.register(stream.fd, events)
        poller.poll(None if timeout is None else 1000 * timeout)

    def look(self) -> None:
        if self._stream is not None:
            self._stream.flush()
            self.unsent = self._stream.unsent > 0
        elif self._due <= time.monotonic():
            self._connect()

    def reconnect(self) -> None:
        # Others may be about to sleep on the descriptor, so it is closed by `receive`.
        if self._stream is not None:
            self._stream.hang_up()

    def move(self, address: Address) -> None:
        self._address, self.endpoint = address, address.text
        self._retry, self._due = FIRST_RETRY, 0.0
        self.reconnect()

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def _connect(self) -> None:
        sock = unix_socket.connect(self._address)
        if sock is None:
            self._due = time.monotonic() + self._retry
            self._retry = min(2 * self._retry, LAST_RETRY)
            return
        _, uid = unix_socket.credentials(sock)
        if not self._anybody and not unix_socket.trusted(uid):
            sock.close()
            raise Refused(
                f'The server at {self.endpoint} belongs to user {uid}. Choose another '
                f'port, or give both sides the keys of the run.'
            )
        self._stream = Stream(sock, self._limit, sys.maxsize)
        self._poller = self._make_poller()
        self._retry = FIRST_RETRY
        self.on_change(True)

    def _lose(self) -> None:
        assert self._stream is not None
        self._stream.close()
        self._stream = None
        self.unsent = False
        self._poller = self._make_poller()
        self._due = time.monotonic() + self._retry
        self.on_change(False)

    def _make_poller(self) -> select.poll:
        poller = select.poll()
        poller.register(self._mail.fileno(), select.POLLIN)
        if self._stream is not None:
            poller.register(self._stream.fd, select.POLLIN)
        return poller
