"""Server over our own wires: Unix sockets for this host, ZeroMQ for all others."""

import logging
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from . import addresses, security
from . import handshake_identity as hello
from .dispatch.batcher import Batcher
from .dispatch.methods import Methods, Task
from .errors import AddressInUse
from .handshake_server import ServerHandshake
from .interface import MAX_WAIT, Server, Settings
from .keys import ServerKeys
from .requests import RequestHandler
from .wires.event_loop import Loop
from .wires.unix_server import UnixListener
from .wires.wire import Listener
from .wires.zmq_server import ZmqListener

__all__ = ['WireServer']

log = logging.getLogger(__name__)


class WireServer(Server):
    """One I/O thread, the loop, for all connections; workers for the methods.

    An address of this host is served to processes on it only, through a Unix socket;
    `tcp://localhost:port` serves TCP as well. Without keys only processes of the same
    user may come through the former, and anybody on this host through the latter.
    """

    def __init__(
        self,
        addr: str | int,
        name: str = 'Server',
        identity: hello.Identity | None = None,
        keys: ServerKeys | None = None,
        encrypt: bool = True,
        settings: Settings | None = None,
    ) -> None:
        self._address = addresses.parse(addr)
        security.require_keys(self._address, keys, encrypt)
        self._name = name
        self._settings = settings or Settings()
        self._loop = Loop()
        self._methods = Methods(name, self._deliver)
        self._methods.on_failure = self._fail
        logbook = security.WarnOnce()
        reception = ServerHandshake(
            name, identity or hello.Identity(), keys, self._settings, logbook
        )
        self._exchange = RequestHandler(
            name, self._loop, self._methods, reception, self._settings, logbook
        )
        self._ports = self._make_ports(keys, encrypt, logbook)
        self._failure: Exception | None = None
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def bind(
        self,
        name: str,
        workfn: Callable,
        postfn: Callable | None = None,
        workers: int = 1,
        once: bool = False,
    ) -> None:
        self._methods.bind(name, workfn, postfn, workers, once)

    def bind_batched(
        self,
        name: str,
        workfn: Callable,
        postfn: Callable | None = None,
        batch: int = 1,
        max_wait: float | Callable[[], float] = MAX_WAIT,
        workers: int = 1,
        once: bool = False,
    ) -> None:
        batcher = Batcher(batch, max_wait)
        self._methods.bind(name, workfn, postfn, workers, once, batcher)

    def start(self, block: bool = True) -> None:
        assert self._thread is None, 'A server starts once.'
        # Before those that receive, which look for signals that replies swallowed.
        self._loop.add_settler(self._methods.settle)
        self._open()
        self._methods.start()
        self._thread = threading.Thread(
            target=self._run, name=f'{self._name}-io', daemon=True
        )
        self._thread.start()
        if block:
            self.wait()

    def wait(self, timeout: float | None = None) -> bool:
        closed = self._closed.wait(timeout)
        if self._failure is not None:
            raise self._failure
        return closed

    def close(self) -> None:
        if self._thread is not None and self._thread.is_alive():
            self._methods.close(self._settings.grace)
            self._loop.stop()
            self._thread.join()
        self._closed.set()

    def empty(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        return self._exchange.pool.empty(shape, dtype)

    def _make_ports(
        self, keys: ServerKeys | None, encrypt: bool, logbook: security.WarnOnce
    ) -> list[Listener]:
        ports: list[Listener] = []
        if addresses.has_unix():
            anybody = keys is not None
            ports.append(UnixListener(self._address, anybody, self._settings, logbook))
        if not self._address.local:
            shown = keys if encrypt else None
            ports.append(ZmqListener(self._address, shown, self._settings, logbook))
        return ports

    def _open(self) -> None:
        opened: list[Listener] = []
        try:
            for port in self._ports:
                port.open(self._loop, self._exchange)
                opened.append(port)
        except OSError as e:
            for port in opened:
                port.close(0.0)
            raise AddressInUse(
                f'{self._name} cannot listen at {self._address.text}: {e.strerror}. '
                f'Another server may run there; choose another port.'
            ) from e

    def _run(self) -> None:
        try:
            self._loop.run()
        except Exception as e:  # noqa: BLE001 - given to whoever waits
            log.error('%s stops serving.', self._name, exc_info=e)
            self._fail(e)
        finally:
            for port in self._ports:
                port.close(self._settings.grace)
            self._loop.close()
            self._exchange.close()
            self._closed.set()

    def _deliver(self, task: Task) -> None:
        self._exchange.deliver(task)

    def _fail(self, error: Exception) -> None:
        if self._failure is None:
            self._failure = error
        self._closed.set()
