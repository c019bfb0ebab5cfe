"""Unix connection: a client's connection to a server on the same host."""

import select
import socket
import sys

from ..codec.frames import MAX_HEAD
from ..errors import MessageError
from ..interface import Settings
from .connection import ClientConnection
from .stream import Stream
from .wake_queue import WakeQueue

__all__ = ['UnixClientConnection']

RDHUP = getattr(select, 'POLLRDHUP', 0)  # signals that the server left; Linux only


class UnixClientConnection(ClientConnection):
    """A connected stream socket."""

    established = True

    def __init__(
        self, sock: socket.socket, settings: Settings, scratch: memoryview
    ) -> None:
        self._stream = Stream(sock, settings.max_message + MAX_HEAD, sys.maxsize)
        self._scratch = scratch
        super().__init__(self._stream.fd)

    def send(self, frames: list) -> bool:
        stream = self._stream
        if not stream.send(frames):
            return False
        if stream.unsent:
            self.unsent = True
        return True

    def receive(self) -> list[list]:
        # A read may end in the middle of a message.
        while not self.lost:
            try:
                if messages := self._stream.receive(self._scratch):
                    return messages
            except (EOFError, MessageError):
                self.lost = True
            except BlockingIOError:
                break
        return []

    def watch(self, queue: WakeQueue, messages: bool, timeout: float | None) -> None:
        poller = select.poll()
        events = RDHUP | (select.POLLIN if messages else 0)
        events |= select.POLLOUT if self._stream.unsent else 0
        poller.register(queue.fileno(), select.POLLIN)
        poller.register(self._stream.fd, events)
        poller.poll(None if timeout is None else 1000 * timeout)

    def maintain(self) -> None:
        self._stream.flush()
        self.unsent = self._stream.unsent > 0

    def disconnect(self) -> None:
        self._stream.shut_down()

    def close(self) -> None:
        self._stream.close()
