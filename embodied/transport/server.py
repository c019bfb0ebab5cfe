"""Server over our own wires: Unix sockets for this host, ZeroMQ for all others."""

from typing import Any

import numpy as np

from . import addresses, security
from .dispatch.methods import Task
from .errors import AddressInUse
from .handshake.identity import Identity
from .handshake.server_side import ServerHandshake
from .interface import Settings
from .keys import ServerKeys
from .requests import RequestHandler
from .threaded_server import ThreadedServer
from .wires.connection import Listener
from .wires.event_loop import Loop
from .wires.unix_server import UnixListener
from .wires.zmq_server import ZmqListener

__all__ = ['WireServer']


class WireServer(ThreadedServer):
    """Serves all connections in one event loop.

    An address of this host is served to processes on it only, through a Unix socket;
    `tcp://localhost:port` is served over TCP as well. Without keys only processes of
    the same user may connect to the former, and all of this host to the latter.
    """

    def __init__(
        self,
        addr: str | int,
        name: str = 'Server',
        identity: Identity | None = None,
        keys: ServerKeys | None = None,
        encrypt: bool = True,
        settings: Settings | None = None,
    ) -> None:
        super().__init__(name, settings)
        self._address = addresses.parse(addr)
        security.require_keys(self._address, keys, encrypt)
        self._loop = Loop()
        warnings = security.WarnOnce()
        handshake = ServerHandshake(
            name, identity or Identity(), keys, self._settings, warnings
        )
        self._requests = RequestHandler(
            name, self._loop, self._methods, handshake, self._settings, warnings
        )
        self._listeners: list[Listener] = []
        if addresses.has_unix():
            self._listeners.append(
                UnixListener(self._address, keys is not None, self._settings, warnings)
            )
        if not self._address.local:
            curve = keys if encrypt else None
            self._listeners.append(
                ZmqListener(self._address, curve, self._settings, warnings)
            )

    def empty(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        return self._requests.pool.empty(shape, dtype)

    def _open(self) -> None:
        # Before what the listeners add: that looks for signals that replies cleared.
        self._loop.before_poll(self._methods.settle)
        opened: list[Listener] = []
        try:
            for listener in self._listeners:
                listener.open(self._loop, self._requests)
                opened.append(listener)
        except OSError as e:
            for listener in opened:
                listener.close(0.0)
            raise AddressInUse(
                f'{self._name} cannot listen at {self._address.text}: {e.strerror}. '
                f'Another server may run there; choose another port.',
                self._address.text,
            ) from e

    def _serve(self) -> None:
        self._loop.run()

    def _stop(self) -> None:
        self._loop.stop()

    def _release(self) -> None:
        for listener in self._listeners:
            listener.close(self._settings.grace)
        self._loop.close()
        self._requests.close()

    def _deliver(self, task: Task) -> None:
        self._requests.deliver(task)
