"""ZeroMQ connection: a client's connection to a server over TCP."""

import zmq

from .. import security
from ..interface import Settings
from ..keys import ClientKeys
from . import zmq_sockets
from .connection import ClientConnection
from .wake_queue import WakeQueue

__all__ = ['ZmqClientConnection']

ENDED = zmq.EVENT_DISCONNECTED | zmq.EVENT_CLOSED | zmq.EVENT_CONNECT_RETRIED
EVENTS = zmq.EVENT_HANDSHAKE_SUCCEEDED | ENDED
LINGER = 500  # milliseconds for the last messages when closing
# ZeroMQ would connect again by itself, without asking for the address. With -1 it does
# not, but drops replies that are not read when the connection ends.
NEVER = 2**30  # milliseconds, twelve days


class ZmqClientConnection(ClientConnection):
    """A DEALER socket, used for a single connection.

    ZeroMQ notices by heartbeats that a server is unreachable. events: a name, unique
    in the context, of the socket that reports what happens to the connection.
    """

    swallows_signals = True

    def __init__(
        self,
        context: zmq.Context,
        endpoint: str,
        keys: ClientKeys | None,
        settings: Settings,
        events: str,
    ) -> None:
        self._sock = context.socket(zmq.DEALER)
        zmq_sockets.configure(self._sock, settings)
        self._sock.set(zmq.RECONNECT_IVL, NEVER)
        self._sock.set(zmq.CONNECT_TIMEOUT, zmq_sockets.milliseconds(settings.patience))
        if keys is not None:
            security.encrypt_client(self._sock, keys)
        self._monitor = self._sock.get_monitor_socket(EVENTS, events)
        self._signal = zmq_sockets.descriptor(self._sock)
        super().__init__(self._signal)
        self._disconnected = False
        self._sock.connect(endpoint)

    def send(self, frames: list) -> bool:
        try:
            zmq_sockets.send(self._sock, frames)
        except zmq.Again:
            return False
        return True

    def receive(self) -> list[list]:
        if not zmq_sockets.readable(self._sock):
            return []
        return [zmq_sockets.receive(self._sock, head=1)]

    def watch(self, queue: WakeQueue, messages: bool, timeout: float | None) -> None:
        items: list = [(self._monitor, zmq.POLLIN), (queue.fileno(), zmq.POLLIN)]
        if messages:
            items.append((self._signal, zmq.POLLIN))
        milliseconds = -1 if timeout is None else zmq_sockets.milliseconds(timeout)
        zmq.zmq_poll(items, milliseconds)

    def maintain(self) -> None:
        while (event := zmq_sockets.next_event(self._monitor)) is not None:
            if event[0] & ENDED:
                self._disconnected = True
            else:
                self.established = True
        self.lost = self._disconnected

    def disconnect(self) -> None:
        self._disconnected = True

    def close(self) -> None:
        self._sock.disable_monitor()
        self._monitor.close(linger=0)
        # Messages of a lost connection could be sent to no server.
        self._sock.close(linger=LINGER if self.established and not self.lost else 0)
