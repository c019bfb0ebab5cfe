"""Unix listener: connections of a server with processes on the same host.

The socket has a name in the kernel and no file. The name follows from the port number,
which is reserved in TCP, so that two servers cannot mean the same address.
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
from .connection import ConnectionHandler, Listener, ServerConnection
from .event_loop import IN, OUT, Loop
from .stream import SCRATCH, Stream

__all__ = ['UnixListener']

BACKLOG = 1024  # connections that are not accepted yet
PAUSE = 1.0  # seconds without accepting, after the process ran out of descriptors
MAX_OPENING = 64 * 1024  # bytes of a message before the handshake
MAX_PENDING = 512  # connections before their handshake; the oldest is closed


class UnixServerConnection(ServerConnection):
    """A connection with a process on this host."""

    def __init__(
        self, listener: 'UnixListener', sock: socket.socket, pid: int, number: int
    ) -> None:
        self.name = f'process {pid}, connection {number}'
        self.pid = pid
        # The opening of a handshake has no large arrays.
        self.stream = Stream(sock, MAX_OPENING, total=0)
        self.open = True
        self._listener = listener
        self._lock = threading.Lock()  # of sending

    def send(self, frames: list) -> None:
        # A lost connection is noticed by the loop, which reads its end.
        with self._lock:
            sent = self.stream.send(frames)
        if sent and self.stream.unsent:
            self._listener.loop.call(functools.partial(self._listener.await_room, self))

    def flush(self) -> bool:
        """Sends more of what is unsent; False if the connection is lost."""
        with self._lock:
            return self.stream.flush()

    def release(self) -> None:
        with self._lock:
            self.stream.close()

    def close(self) -> None:
        self._listener.drop(self)


class UnixListener(Listener):
    """Accepts processes of this user; with `any_user`, those of all users."""

    def __init__(
        self, address: Address, any_user: bool, settings: Settings, warnings: WarnOnce
    ) -> None:
        self.loop: Loop
        self._handler: ConnectionHandler
        self._address = address
        self._any_user = any_user
        self._settings = settings
        self._warnings = warnings
        self._count = 0
        self._connections: set[UnixServerConnection] = set()
        # Connections before their handshake, and when they are closed without it.
        self._pending: dict[UnixServerConnection, float] = {}
        self._scratch = memoryview(bytearray(SCRATCH))
        self._listener: socket.socket
        self._reserved: socket.socket | None = None  # the port number in TCP
        self._paused_until = math.inf

    def open(self, loop: Loop, handler: ConnectionHandler) -> None:
        self.loop, self._handler = loop, handler
        if self._address.local:
            self._reserved = unix_socket.reserve(self._address)
        try:
            self._listener = unix_socket.listen(self._address, BACKLOG)
        except OSError:
            self._release_port()
            raise
        loop.add(self._listener.fileno(), self._accept)
        loop.add_clock(self)

    def close(self, grace: float) -> None:
        self._listener.close()
        self._flush_all(time.monotonic() + grace)
        for connection in self._connections:
            connection.release()
        self._release_port()

    # Clock: connections without a handshake, and pauses of accepting.

    def deadline(self) -> float:
        # They all have as much time, so the oldest comes first.
        first = next(iter(self._pending.values()), math.inf)
        return min(first, self._paused_until)

    def run_due(self, now: float) -> None:
        if self._paused_until <= now:
            self._paused_until = math.inf
            self.loop.change(self._listener.fileno(), IN)
        while self._pending and next(iter(self._pending.values())) <= now:
            self._drop_pending('it did not begin the handshake.')

    # For connections, in the loop.

    def await_room(self, connection: UnixServerConnection) -> None:
        """Sends the rest as soon as the client has read what was sent."""
        if not connection.open:
            return
        self.loop.change(connection.stream.fd, IN | OUT)
        if connection.stream.unsent > self._settings.max_unread:
            self._handler.overflowed(connection)
            self.drop(connection)

    def drop(self, connection: UnixServerConnection) -> None:
        if not connection.open:
            return
        connection.open = False
        self._connections.discard(connection)
        self._pending.pop(connection, None)
        self.loop.remove(connection.stream.fd)
        connection.release()
        self._handler.lost(connection)

    def _accept(self, events: int) -> None:
        try:
            sock, _ = self._listener.accept()
        except BlockingIOError:
            return
        except OSError as e:  # no descriptors or no memory left
            self._warnings.warn(self._address.text, f'accepts no connections now: {e}')
            self._paused_until = time.monotonic() + PAUSE
            self.loop.change(self._listener.fileno(), 0)
            return
        pid, uid = unix_socket.credentials(sock)
        if not self._any_user and not unix_socket.trusted(uid):
            self._warnings.warn(f'user {uid}', 'refused, only the owner may connect.')
            sock.close()
            return
        self._count += 1
        connection = UnixServerConnection(self, sock, pid, self._count)
        self._connections.add(connection)
        self._pending[connection] = time.monotonic() + self._settings.patience
        if len(self._pending) > MAX_PENDING:
            self._drop_pending(f'{MAX_PENDING} connections have not begun theirs.')
        self.loop.add(connection.stream.fd, functools.partial(self._ready, connection))

    def _drop_pending(self, reason: str) -> None:
        """Closes the oldest connection without a handshake."""
        connection = next(iter(self._pending))
        name = f'process {connection.pid}'
        self._warnings.warn(name, f'closed before the handshake, {reason}')
        self.drop(connection)

    def _ready(self, connection: UnixServerConnection, events: int) -> None:
        stream = connection.stream
        if events & OUT and connection.flush() and not stream.unsent:
            self.loop.change(stream.fd, IN)
        if not events & ~OUT:
            return
        try:
            messages = stream.receive(self._scratch)
        except BlockingIOError:
            return
        except EOFError:
            self.drop(connection)
            return
        except MessageError as e:
            self._handler.malformed(connection, str(e))
            self.drop(connection)
            return
        for frames in messages:
            self._handler.received(connection, frames)
        if connection.session is not None and stream.limit == MAX_OPENING:
            self._pending.pop(connection, None)
            stream.limit = self._settings.max_message + MAX_HEAD
            stream.total = self._settings.max_queued

    def _release_port(self) -> None:
        if self._reserved is not None:
            self._reserved.close()

    def _flush_all(self, deadline: float) -> None:
        waiting = {x.stream.fd: x for x in self._connections if x.stream.unsent}
        poller = select.poll()
        for fd in waiting:
            poller.register(fd, OUT)
        while waiting and (left := deadline - time.monotonic()) > 0:
            for fd, _ in poller.poll(1000 * left):
                connection = waiting[fd]
                if not connection.flush() or not connection.stream.unsent:
                    poller.unregister(fd)
                    del waiting[fd]
