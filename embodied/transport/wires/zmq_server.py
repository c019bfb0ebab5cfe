"""ZeroMQ port: connections of a server over TCP, encrypted where there are keys."""

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
from .event_loop import Loop
from .strangers import Strangers
from .unread import Unread
from .wire import ConnectionHandler, Listener, ServerConnection

__all__ = ['ZmqListener']

MESSAGES_PER_TURN = 64  # before finished work gets its chance
# A connection's end is announced before its route is gone, so look again later.
SWEEPS = (0.0, 0.02, 0.2, 1.0)
ENDED = zmq.EVENT_DISCONNECTED
EVENTS = zmq.EVENT_ACCEPTED | ENDED | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
PROBE = Message(Kind.PROBE).frames()


class ZmqServerConnection(ServerConnection):
    """A connection of a ROUTER. Its route is ours, so nobody can claim another's."""

    def __init__(self, port: 'ZmqListener', route: bytes) -> None:
        self.name = f'connection {route.hex()}'
        self.route = route
        self.unread = Unread()
        self.deaf = False
        self._port = port

    def send(self, frames: list) -> None:
        if self._port.loop.inside:
            self._port.send(self, frames)
        else:
            # A ROUTER belongs to one thread: others would swallow its signals.
            self._port.loop.call(functools.partial(self._port.send, self, frames))

    def close(self) -> None:
        self.deaf = True  # ZeroMQ cannot hang up on one peer.


class ZmqListener(Listener):
    """A ROUTER socket in the loop of a server."""

    def __init__(
        self,
        address: Address,
        keys: ServerKeys | None,
        settings: Settings,
        logbook: security.WarnOnce,
    ) -> None:
        self.loop: Loop
        self._host: ConnectionHandler
        self._address = address
        self._keys = keys  # without keys nothing is encrypted
        self._settings = settings
        self._logbook = logbook
        self._links: dict[bytes, ZmqServerConnection] = {}  # of those who said hello
        self._strangers = Strangers(settings.patience, self._watch)
        self._sweeps: list[float] = []
        self._touched = True  # something may have arrived without a signal

    def open(self, loop: Loop, host: ConnectionHandler) -> None:
        self.loop, self._host = loop, host
        endpoint = self._address.resolved().tcp
        self._context = zmq.Context()
        self._router = self._context.socket(zmq.ROUTER)
        zmq_sockets.configure(self._router, self._settings)
        self._monitor = self._router.get_monitor_socket(EVENTS)
        gate = None
        try:
            if self._keys is not None:
                gate = security.CurveAuthenticator(
                    self._context, self._keys.allowed, self._logbook
                )
                security.encrypt_server(self._router, self._keys)
            self._router.bind(endpoint)
        except zmq.ZMQError as e:
            self._context.destroy(linger=0)
            raise OSError(e.errno, zmq.strerror(e.errno or 0)) from e
        loop.add(zmq_sockets.descriptor(self._router), self._touch)
        loop.add(zmq_sockets.descriptor(self._monitor), self._watch)
        # Signals come only to those who looked before and found nothing.
        self._watch()
        if gate is not None:
            loop.add(zmq_sockets.descriptor(gate.sock), gate.answer)
            gate.answer()
        loop.add_settler(self._settle)
        loop.add_clock(self)

    def close(self, grace: float) -> None:
        self._router.disable_monitor()
        self._context.destroy(linger=int(1000 * grace))

    # Clock: connections that ended, and those that do not say hello.

    def deadline(self) -> float:
        sweep = self._sweeps[0] if self._sweeps else math.inf
        return min(sweep, self._strangers.due)

    def run_due(self, now: float) -> None:
        if self._strangers.due <= now:
            self._hang_up(now)
        if not self._sweeps or self._sweeps[0] > now:
            return
        self._sweeps = [due for due in self._sweeps if due > now]
        for link in list(self._links.values()):
            self._send(link, PROBE)

    def send(self, link: ZmqServerConnection, frames: list) -> None:
        """In the loop only."""
        if not link.deaf:
            self._send(link, frames)

    def _send(self, link: ZmqServerConnection, frames: list) -> None:
        self._touched = True
        track = link.unread.count(frames)
        try:
            tracker = zmq_sockets.send(self._router, [link.route, *frames], track)
        except zmq.ZMQError as e:
            if e.errno != zmq.EHOSTUNREACH:
                raise
            self._links.pop(link.route, None)
            self._host.lost(link)
            return
        unread = link.unread.track(tracker) if track else 0
        if unread > self._settings.max_unread and not link.deaf:
            link.close()
            self._host.slow(link)

    def _touch(self, events: int) -> None:
        self._touched = True

    def _settle(self) -> bool:
        """Receives until there is nothing, since every use may swallow the signal.

        Returns whether something came, which others have not seen yet.
        """
        if not self._touched:
            return False
        for count in range(MESSAGES_PER_TURN):
            if not zmq_sockets.readable(self._router):
                self._touched = False
                return count > 0
            route = self._router.recv(zmq_sockets.DONTWAIT)
            link = self._links.get(route)
            if link is None:
                self._receive_first(ZmqServerConnection(self, route))
                continue
            frames = zmq_sockets.receive(self._router, head=1)
            if not link.deaf:
                self._host.received(link, frames)
        return True

    def _receive_first(self, link: ZmqServerConnection) -> None:
        """Takes a message of a peer that has not said hello, and may do so now."""
        fd, frames = zmq_sockets.receive_first(self._router)
        self._host.received(link, frames)
        if link.peer is not None:
            self._links[link.route] = link
            self._watch()  # That it came was announced before.
            self._strangers.left(fd)

    def _hang_up(self, now: float) -> None:
        if count := self._strangers.hang_up(now):
            message = f'{count} connections were ended, their peers said no hello.'
            self._logbook.warn(self._address.text, message)

    def _watch(self, events: int = 0) -> None:
        while event := zmq_sockets.next_event(self._monitor):
            kind, endpoint, fd = event
            if kind == zmq.EVENT_ACCEPTED:
                self._strangers.came(fd)
            elif kind == ENDED:
                self._strangers.left(fd)
                now = time.monotonic()
                self._sweeps = [now + delay for delay in SWEEPS]
            else:
                self._logbook.warn(endpoint, 'a connection was refused, wrong key?')
