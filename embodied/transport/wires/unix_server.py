"""Unix port: connections of a server with processes on the same host.

The socket has a name in the kernel and no file. It follows from the port number,
which stays reserved in TCP, so that two servers cannot mean the same address.
"""

import functools
import math
import select
import socket
import threading
import time

from ..addresses import Address
from ..codec.frames import MAX_HEAD
from ..errors import MessageError
from ..interface import Settings
from ..security import WarnOnce
from . import unix_socket
from .event_loop import IN, OUT, Loop
from .stream import SCRATCH, Stream
from .wire import ConnectionHandler, Listener, ServerConnection

__all__ = ['UnixListener']

QUEUE = 1024  # connections that nobody has accepted yet
PAUSE = 1.0  # seconds until somebody is let in again after that was impossible
MAX_HELLO = 64 * 1024  # bytes that a peer may send before it is known
MAX_STRANGERS = 512  # connections that have not said hello; the oldest gives way


class UnixServerConnection(ServerConnection):
    """A connection with a process on this host."""

    def __init__(
        self, port: 'UnixListener', sock: socket.socket, pid: int, number: int
    ) -> None:
        self.name = f'process {pid}, connection {number}'
        self.pid = pid
        self.stream = Stream(sock, MAX_HELLO, total=0)  # A hello has no large arrays.
        self.open = True
        self._port = port
        self._lock = threading.Lock()  # of sending

    def send(self, frames: list) -> None:
        # Failures are noticed by the loop, which reads the end of the connection.
        with self._lock:
            sent = self.stream.send(frames)
        if sent and self.stream.unsent:
            self._port.loop.call(functools.partial(self._port.await_room, self))

    def flush(self) -> bool:
        """Sends more of what is unsent; False when the peer is gone."""
        with self._lock:
            return self.stream.flush()

    def hang_up(self) -> None:
        with self._lock:
            self.stream.close()

    def close(self) -> None:
        self._port.drop(self)


class UnixListener(Listener):
    """Lets processes of this user in, or of all users if they must show keys."""

    def __init__(
        self, address: Address, anybody: bool, settings: Settings, logbook: WarnOnce
    ) -> None:
        self.loop: Loop
        self._host: ConnectionHandler
        self._address = address
        self._anybody = anybody
        self._settings = settings
        self._logbook = logbook
        self._count = 0
        self._links: set[UnixServerConnection] = set()
        # Connections without a handshake, and until when they may be so.
        self._strangers: dict[UnixServerConnection, float] = {}
        self._scratch = memoryview(bytearray(SCRATCH))
        self._listener: socket.socket
        self._reserved: socket.socket | None = None  # the number in TCP
        self._full_until = math.inf  # when somebody is let in again, if nobody is

    def open(self, loop: Loop, host: ConnectionHandler) -> None:
        self.loop, self._host = loop, host
        if self._address.local:
            self._reserved = unix_socket.reserve(self._address)
        try:
            self._listener = unix_socket.listen(self._address, QUEUE)
        except OSError:
            self._release()
            raise
        loop.add(self._listener.fileno(), self._accept)
        loop.add_clock(self)

    def close(self, grace: float) -> None:
        self._listener.close()
        self._flush_all(time.monotonic() + grace)
        for link in self._links:
            link.hang_up()
        self._release()

    # Clock: peers that do not say who they are, and pauses of letting in.

    def deadline(self) -> float:
        # They all have as much time, so the oldest comes first.
        first = next(iter(self._strangers.values()), math.inf)
        return min(first, self._full_until)

    def run_due(self, now: float) -> None:
        if self._full_until <= now:
            self._full_until = math.inf
            self.loop.change(self._listener.fileno(), IN)
        while self._strangers and next(iter(self._strangers.values())) <= now:
            self._drop_stranger('it never said hello.')

    # For links, in the loop.

    def await_room(self, link: UnixServerConnection) -> None:
        """The peer reads too slowly for what it asks for."""
        if not link.open:
            return
        self.loop.change(link.stream.fd, IN | OUT)
        if link.stream.unsent > self._settings.max_unread:
            self._host.slow(link)
            self.drop(link)

    def drop(self, link: UnixServerConnection) -> None:
        if not link.open:
            return
        link.open = False
        self._links.discard(link)
        self._strangers.pop(link, None)
        self.loop.remove(link.stream.fd)
        link.hang_up()
        self._host.lost(link)

    def _accept(self, events: int) -> None:
        try:
            sock, _ = self._listener.accept()
        except BlockingIOError:
            return
        except OSError as e:  # no descriptors or no memory left
            self._logbook.warn(self._address.text, f'nobody is let in for now: {e}')
            self._full_until = time.monotonic() + PAUSE
            self.loop.change(self._listener.fileno(), 0)
            return
        pid, uid = unix_socket.credentials(sock)
        if not self._anybody and not unix_socket.trusted(uid):
            self._logbook.warn(f'user {uid}', 'refused, only the owner may connect.')
            sock.close()
            return
        self._count += 1
        link = UnixServerConnection(self, sock, pid, self._count)
        self._links.add(link)
        self._strangers[link] = time.monotonic() + self._settings.patience
        if len(self._strangers) > MAX_STRANGERS:
            self._drop_stranger(f'{MAX_STRANGERS} connections have not said hello.')
        self.loop.add(link.stream.fd, functools.partial(self._ready, link))

    def _drop_stranger(self, reason: str) -> None:
        """Hangs up on the one that has been silent for the longest time."""
        link = next(iter(self._strangers))
        self._logbook.warn(f'process {link.pid}', f'hung up on, {reason}')
        self.drop(link)

    def _ready(self, link: UnixServerConnection, events: int) -> None:
        stream = link.stream
        if events & OUT and link.flush() and not stream.unsent:
            self.loop.change(stream.fd, IN)
        if not events & ~OUT:
            return
        try:
            messages = stream.receive(self._scratch)
        except BlockingIOError:
            return
        except EOFError:
            self.drop(link)
            return
        except MessageError as e:
            self._host.broken(link, str(e))
            self.drop(link)
            return
        for frames in messages:
            self._host.received(link, frames)
        if link.peer is not None and stream.limit == MAX_HELLO:
            self._strangers.pop(link, None)
            stream.limit = self._settings.max_message + MAX_HEAD
            stream.total = self._settings.max_queued

    def _release(self) -> None:
        if self._reserved is not None:
            self._reserved.close()

    def _flush_all(self, deadline: float) -> None:
        waiting = {x.stream.fd: x for x in self._links if x.stream.unsent}
        poller = select.poll()
        for fd in waiting:
            poller.register(fd, OUT)
        while waiting and (left := deadline - time.monotonic()) > 0:
            for fd, _ in poller.poll(1000 * left):
                link = waiting[fd]
                if not link.flush() or not link.stream.unsent:
                    poller.unregister(fd)
                    del waiting[fd]
