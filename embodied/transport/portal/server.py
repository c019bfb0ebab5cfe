"""Portal server: our methods and batches behind the sockets of the portal library.

Speaks the protocol of `portal.Client`. What its own server gets wrong is mended here
from outside: large replies, partial batches, peers that leave during the handshake.
"""

import logging
import math
import queue
import selectors
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from portal import server_socket

from embodied.core.errors import ConfigError

from .. import addresses
from ..dispatch.batcher import Batcher
from ..dispatch.jobs import Job, failure
from ..dispatch.methods import Methods, Task
from ..errors import AddressInUse, MessageError
from ..handshake_identity import Identity
from ..interface import MAX_WAIT, Request, Server, Settings
from ..keys import ServerKeys
from . import messages as portal_wire

__all__ = ['PortalServer']

log = logging.getLogger(__name__)

U64 = 8
OK, FAILED = (0).to_bytes(U64, 'little'), (4).to_bytes(U64, 'little')
UNBOUNDED = 10**6  # messages; portal's own limits end the server
MAX_STRANGERS = 512  # connections without a handshake; the oldest gives way


class Gone:
    """A connection ended."""

    def __init__(self, addr: tuple) -> None:
        self.addr = addr


class PortalJob(Job):
    """A request that came through portal."""

    def __init__(self, addr: tuple, number: bytes, rows: int, data: Any) -> None:
        self.client = self.addr = addr
        self.number = number
        self._data = data
        self.arrived = time.monotonic()
        self.nbytes = len(data)
        self.rows = rows
        self.sealed: list = []

    @property
    def request(self) -> Request:
        client = f'{self.addr[0]}:{self.addr[1]}'
        number = int.from_bytes(self.number, 'little')
        return Request(client, '', number, False, self.rows)

    def load(self) -> tuple:
        args = portal_wire.unpack(self._data)
        if not isinstance(args, (list, tuple)):
            raise MessageError('The arguments of a call are a tuple.')
        return tuple(args)

    def seal(self) -> None:
        assert self.outcome is not None
        if self.outcome.ok:
            body = portal_wire.pack(self.outcome.value)
            self.sealed = [self.number + OK, *body]
        else:
            words = self.outcome.value
            text = f'{words["message"]}\n{words["text"]}'
            self.sealed = [self.number + FAILED, text.encode()]


class PortalServer(Server):
    """Serves methods to portal clients on this host."""

    def __init__(
        self,
        addr: str | int,
        name: str = 'Server',
        identity: Identity | None = None,
        keys: ServerKeys | None = None,
        encrypt: bool = True,
        settings: Settings | None = None,
    ) -> None:
        del identity, encrypt  # Portal has no hello and no encryption.
        self._address = addresses.parse(addr)
        if keys is not None or not self._address.loopback:
            raise ConfigError(
                f'Portal cannot authenticate its peers, so it serves localhost only, '
                f'not {self._address.host}. Choose run.transport=zmq.'
            )
        self._name = name
        self._settings = settings or Settings()
        self._methods = Methods(name, self._post)
        self._methods.on_failure = self._fail
        self._failure: Exception | None = None
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        self._queued_bytes = 0

    def bind(
        self,
        name: str,
        workfn: Callable,
        postfn: Callable | None = None,
        workers: int = 1,
        once: bool = False,
    ) -> None:
        if once:
            log.info('%s: portal repeats calls after a reconnect, once or not.', name)
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
        try:
            _try_to_bind(self._address.port)
            self._socket = HardenedSocket(
                self._address.port,
                self._name,
                host='127.0.0.1',
                max_msg_size=self._settings.max_message,
                max_recv_queue=UNBOUNDED,
                max_send_queue=UNBOUNDED,
                logging=False,
                patience=self._settings.patience,
            )
        except OSError as e:
            raise AddressInUse(
                f'{self._name} cannot listen at port {self._address.port}: {e}.'
            ) from e
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
            self._socket.recvq.put(None)
            self._thread.join()
        self._closed.set()

    def _post(self, task: Task) -> None:
        self._socket.recvq.put(task)

    def _run(self) -> None:
        try:
            while self._turn():
                pass
        except Exception as e:  # noqa: BLE001 - given to whoever waits
            log.error('%s stops serving.', self._name, exc_info=e)
            self._fail(e)
        finally:
            self._socket.shutdown()
            self._socket.close()
            self._closed.set()

    def _turn(self) -> bool:
        due = self._methods.deadline()
        timeout = None if due == math.inf else max(0.0, due - time.monotonic())
        try:
            item = self._socket.recvq.get(timeout=timeout)
        except queue.Empty:
            self._methods.run_due()
            return True
        if item is None:
            if self._socket.error:
                raise self._socket.error
            return False
        if isinstance(item, Task):
            for job in item.jobs:
                assert isinstance(job, PortalJob)
                self._queued_bytes -= job.nbytes
                self._send(job)
            self._methods.finished(item)
        elif isinstance(item, Gone):
            self._methods.forget(item.addr)
        else:
            self._request(*item)
        self._methods.run_due()
        return True

    def _request(self, addr: tuple, data: Any) -> None:
        number = bytes(data[:U64])
        job = PortalJob(addr, number, 0, data)
        try:
            name, rows, rest = portal_wire.read_method(data[U64:])
            job = PortalJob(addr, number, rows, rest)
            method = self._methods.get(name.encode())
            if method is None:
                raise MessageError(f'{self._name} has no method {name!r}.')
            if self._queued_bytes + job.nbytes > self._settings.max_queued:
                raise MessageError(f'{self._name} is overloaded, try again later.')
            self._methods.submit(method, job)
        except MessageError as e:
            job.outcome = failure(e)
            job.seal()
            self._send(job)
            return
        self._queued_bytes += job.nbytes

    def _send(self, job: PortalJob) -> None:
        assert job.outcome is not None
        if job.unanswered:
            return
        self._socket.send(job.addr, *job.sealed)

    def _fail(self, error: Exception) -> None:
        if self._failure is None:
            self._failure = error
        self._closed.set()


class HardenedSocket(server_socket.ServerSocket):
    """Portal's server socket without the faults that can be mended from outside.

    patience: seconds that a connection has for its handshake, and that may pass in the
    middle of a message without any of it arriving.
    """

    def __init__(self, *args: Any, patience: float, **options: Any) -> None:
        self._patience = patience
        self._late: dict[Any, float] = {}  # unfinished connections, and until when
        super().__init__(*args, **options)

    def _loop(self) -> None:
        self.sel: Any = PatientSelector(self.sel, self.conns, self._drop_late)
        super()._loop()
        self.recvq.put(None)  # Nobody else would learn that it ended.

    def _accept(self, sock: socket.socket) -> None:
        before = set(self.conns)
        super()._accept(sock)
        for addr in self.conns.keys() - before:
            self._late[self.conns[addr]] = time.monotonic() + self._patience
        size = len(self.handshake)
        strangers = [x for x in self._late if len(x.handshake) < size]
        if len(strangers) > MAX_STRANGERS:
            self._disconnect(strangers[0], TimeoutError())

    def _drop_late(self) -> None:
        now = time.monotonic()
        for conn in [conn for conn, due in self._late.items() if due <= now]:
            self._disconnect(conn, TimeoutError())

    def _handshake(self, conn: Any) -> None:
        # Portal takes the end of a connection for a pause and spins.
        if not conn.sock.recv(1, socket.MSG_PEEK):
            self._disconnect(conn, ConnectionResetError())
        else:
            super()._handshake(conn)

    def _recv(self, conn: Any) -> None:
        try:
            super()._recv(conn)
        except AssertionError as e:  # Lengths beyond the limit end portal's thread.
            self._disconnect(conn, e)
            return
        if len(conn.handshake) < len(self.handshake) or conn.addr not in self.conns:
            return
        if conn.recvbuf and (conn.recvbuf.lenbuf or conn.recvbuf.buffer):
            self._late[conn] = time.monotonic() + self._patience
        else:
            self._late.pop(conn, None)

    def _disconnect(self, conn: Any, e: Exception) -> None:
        self._late.pop(conn, None)
        super()._disconnect(conn, e)
        self.recvq.put(Gone(conn.addr))


class PatientSelector:
    """Also wakes when a connection with unsent bytes becomes writable.

    Portal waits for readable sockets only, so each piece of a large reply would wait
    for the next request or a timeout. before: called whenever portal waits, which it
    does five times per second at least.
    """

    def __init__(
        self, inner: selectors.BaseSelector, conns: dict, before: Callable[[], None]
    ) -> None:
        self._inner = inner
        self._conns = conns
        self._before = before
        self._writing: set = set()
        self.register = inner.register
        self.close = inner.close

    def unregister(self, sock: socket.socket) -> None:
        self._writing.discard(sock)
        self._inner.unregister(sock)

    def select(self, timeout: float | None) -> list:
        self._before()
        for conn in list(self._conns.values()):
            unsent = bool(conn.sendbufs)
            if unsent != (conn.sock in self._writing):
                events = selectors.EVENT_READ | (selectors.EVENT_WRITE if unsent else 0)
                self._inner.modify(conn.sock, events, data=conn)
                (self._writing.add if unsent else self._writing.discard)(conn.sock)
        return self._inner.select(timeout)


def _try_to_bind(port: int) -> None:
    """Raises OSError for a taken port; portal would also leak its socket."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(('127.0.0.1', port))
