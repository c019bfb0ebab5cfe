"""ZeroMQ listener: connections of a server over TCP, encrypted if there are keys."""

import functools
import math
import time

import zmq

from .. import security
from ..addresses import Address
from ..codec.frames import Kind, Message
from ..interface import Settings
from ..keys import ServerKeys
from . import zmq_sockets
from .connection import ConnectionHandler, Listener, ServerConnection
from .event_loop import Loop
from .pending_handshakes import PendingHandshakes
from .unread_replies import UnreadReplies

__all__ = ['ZmqListener']

MESSAGES_PER_TURN = 64  # of the loop, which then sends replies
# The end of a connection is reported before its route is gone, so probe it again later.
PROBE_DELAYS = (0.0, 0.02, 0.2, 1.0)
ENDED = zmq.EVENT_DISCONNECTED
EVENTS = zmq.EVENT_ACCEPTED | ENDED | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
PROBE = Message(Kind.PROBE).frames()


class ZmqServerConnection(ServerConnection):
    """A connection of a ROUTER, which alone chooses the routes of clients."""

    def __init__(self, listener: 'ZmqListener', route: bytes) -> None:
        self.name = f'connection {route.hex()}'
        self.route = route
        self.unread = UnreadReplies()
        self.ignored = False
        self._listener = listener

    def send(self, frames: list) -> None:
        if self._listener.loop.inside:
            self._listener.send(self, frames)
        else:
            # A ROUTER belongs to one thread: another one would clear its signals.
            send = functools.partial(self._listener.send, self, frames)
            self._listener.loop.call(send)

    def close(self) -> None:
        self.ignored = True  # ZeroMQ cannot close a single connection.


class ZmqListener(Listener):
    """A ROUTER socket in the event loop of a server."""

    def __init__(
        self,
        address: Address,
        keys: ServerKeys | None,
        settings: Settings,
        warnings: security.WarnOnce,
    ) -> None:
        self.loop: Loop
        self._handler: ConnectionHandler
        self._address = address
        self._keys = keys  # Without them nothing is encrypted.
        self._settings = settings
        self._warnings = warnings
        self._connections: dict[bytes, ZmqServerConnection] = {}  # after the handshake
        self._pending = PendingHandshakes(settings.patience, self._read_events)
        self._probes: list[float] = []  # when to send them
        self._touched = True  # a message may have arrived without a signal

    def open(self, loop: Loop, handler: ConnectionHandler) -> None:
        self.loop, self._handler = loop, handler
        endpoint = self._address.resolved().tcp
        self._context = zmq.Context()
        self._router = self._context.socket(zmq.ROUTER)
        zmq_sockets.configure(self._router, self._settings)
        self._monitor = self._router.get_monitor_socket(EVENTS)
        authenticator = None
        try:
            if self._keys is not None:
                authenticator = security.CurveAuthenticator(
                    self._context, self._keys.allowed, self._warnings
                )
                security.encrypt_server(self._router, self._keys)
            self._router.bind(endpoint)
        except zmq.ZMQError as e:
            self._context.destroy(linger=0)
            raise OSError(e.errno, zmq.strerror(e.errno or 0)) from e
        loop.add(zmq_sockets.descriptor(self._router), self._touch)
        loop.add(zmq_sockets.descriptor(self._monitor), self._read_events)
        # A descriptor signals only after the socket was found empty once.
        self._read_events()
        if authenticator is not None:
            loop.add(zmq_sockets.descriptor(authenticator.sock), authenticator.answer)
            authenticator.answer()
        loop.before_poll(self._receive)
        loop.add_clock(self)

    def close(self, grace: float) -> None:
        self._router.disable_monitor()
        self._context.destroy(linger=int(1000 * grace))

    # Clock: connections that have ended, and those without a handshake.

    def deadline(self) -> float:
        probe = self._probes[0] if self._probes else math.inf
        return min(probe, self._pending.due)

    def run_due(self, now: float) -> None:
        if self._pending.due <= now:
            self._close_pending(now)
        if not self._probes or self._probes[0] > now:
            return
        self._probes = [due for due in self._probes if due > now]
        for connection in list(self._connections.values()):
            self._send(connection, PROBE)

    def send(self, connection: ZmqServerConnection, frames: list) -> None:
        """Sends a message; called in the loop only."""
        if not connection.ignored:
            self._send(connection, frames)

    def _send(self, connection: ZmqServerConnection, frames: list) -> None:
        self._touched = True
        track = connection.unread.count(frames)
        try:
            tracker = zmq_sockets.send(self._router, [connection.route, *frames], track)
        except zmq.ZMQError as e:
            if e.errno != zmq.EHOSTUNREACH:
                raise
            self._connections.pop(connection.route, None)
            self._handler.lost(connection)
            return
        unread = connection.unread.track(tracker) if track else 0
        if unread > self._settings.max_unread and not connection.ignored:
            connection.close()
            self._handler.overflowed(connection)

    def _touch(self, events: int) -> None:
        self._touched = True

    def _receive(self) -> bool:
        """Receives all messages, since every use of the socket may clear the signal.

        Returns whether something has arrived that other hooks have not seen yet.
        """
        if not self._touched:
            return False
        for count in range(MESSAGES_PER_TURN):
            if not zmq_sockets.readable(self._router):
                self._touched = False
                return count > 0
            route = self._router.recv(zmq_sockets.DONTWAIT)
            connection = self._connections.get(route)
            if connection is None:
                self._receive_first(ZmqServerConnection(self, route))
                continue
            frames = zmq_sockets.receive(self._router, head=1)
            if not connection.ignored:
                self._handler.received(connection, frames)
        return True

    def _receive_first(self, connection: ZmqServerConnection) -> None:
        """Receives a message before the handshake, which it may complete."""
        fd, frames = zmq_sockets.receive_first(self._router)
        self._handler.received(connection, frames)
        if connection.session is not None:
            self._connections[connection.route] = connection
            self._read_events()  # They begin with the connection itself.
            self._pending.remove(fd)

    def _close_pending(self, now: float) -> None:
        if count := self._pending.close_due(now):
            message = f'{count} connections were closed, which began no handshake.'
            self._warnings.warn(self._address.text, message)

    def _read_events(self, events: int = 0) -> None:
        while event := zmq_sockets.next_event(self._monitor):
            kind, endpoint, fd = event
            if kind == zmq.EVENT_ACCEPTED:
                self._pending.add(fd)
            elif kind == ENDED:
                self._pending.remove(fd)
                now = time.monotonic()
                self._probes = [now + delay for delay in PROBE_DELAYS]
            else:
                self._warnings.warn(endpoint, 'a connection was refused, wrong key?')
