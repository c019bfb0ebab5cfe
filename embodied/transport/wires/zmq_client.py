"""ZeroMQ line: a client's way to a server over TCP."""

import select
from collections.abc import Callable

import zmq

from .. import security
from ..addresses import Address
from ..interface import Settings
from ..keys import ClientKeys
from . import zmq_sockets
from .wake_queue import WakeQueue
from .wire import ClientConnection

__all__ = ['ZmqClientConnection']

EVENTS = zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED
LINGER = 500  # milliseconds for the last messages when closing


class ZmqClientConnection(ClientConnection):
    """A DEALER socket. ZeroMQ connects and notices dead connections by heartbeats."""

    swallows_signals = True

    def __init__(
        self,
        address: Address,
        keys: ClientKeys | None,
        settings: Settings,
        on_change: Callable[[bool], None],
    ) -> None:
        self.endpoint = address.tcp
        self.on_change = on_change
        self._connected = False
        self._mail = WakeQueue()
        self._context = zmq.Context()
        self._sock = self._context.socket(zmq.DEALER)
        zmq_sockets.configure(self._sock, settings)
        if keys is not None:
            security.encrypt_client(self._sock, keys)
        self._monitor = self._sock.get_monitor_socket(EVENTS)
        self._signal = zmq_sockets.descriptor(self._sock)
        self._mail_event = (self._mail.fileno(), select.POLLIN)
        self._poller = select.poll()
        self._poller.register(self._signal, select.POLLIN)
        self._poller.register(self._mail.fileno(), select.POLLIN)
        self._sock.connect(self.endpoint)

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

    def wait(self, timeout: float | None) -> None:
        ready = self._poller.poll(None if timeout is None else 1000 * timeout)
        if self._mail_event in ready:
            self._mail.take()

    def wake(self) -> None:
        self._mail.put(None)

    def watch(self, mail: WakeQueue, messages: bool, timeout: float | None) -> None:
        items: list = [(self._monitor, zmq.POLLIN), (mail.fileno(), zmq.POLLIN)]
        if messages:
            items.append((self._signal, zmq.POLLIN))
        milliseconds = -1 if timeout is None else zmq_sockets.milliseconds(timeout)
        zmq.zmq_poll(items, milliseconds)

    def look(self) -> None:
        while (event := zmq_sockets.next_event(self._monitor)) is not None:
            self._connected = event[0] == zmq.EVENT_HANDSHAKE_SUCCEEDED
            self.on_change(self._connected)

    def reconnect(self) -> None:
        self._sock.disconnect(self.endpoint)
        self._sock.connect(self.endpoint)

    def move(self, address: Address) -> None:
        self._sock.disconnect(self.endpoint)
        self.endpoint = address.tcp
        self._sock.connect(self.endpoint)

    def close(self) -> None:
        self._sock.disable_monitor()
        # Without a connection the last messages reach nobody.
        self._context.destroy(linger=LINGER if self._connected else 0)
