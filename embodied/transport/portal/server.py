"""Portal server: our methods and batches behind the sockets of the portal library.

It speaks the protocol of `portal.Client`.
"""

import math
import queue
import socket
import time
from typing import Any

from ..dispatch.jobs import Job, failure
from ..dispatch.methods import Task
from ..errors import AddressInUse, MessageError
from ..handshake.identity import Identity
from ..interface import Request, Settings
from ..keys import ServerKeys
from ..threaded_server import ThreadedServer
from . import messages
from .hardened_socket import Gone, HardenedSocket

__all__ = ['PortalServer']

U64 = 8
OK, FAILED = (0).to_bytes(U64, 'little'), (4).to_bytes(U64, 'little')
UNBOUNDED = 10**6  # messages; portal's own limits end the server


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
        args = messages.unpack(self._data)
        if not isinstance(args, (list, tuple)):
            raise MessageError('The arguments of a call are a tuple.')
        return tuple(args)

    def seal(self) -> None:
        assert self.outcome is not None
        if self.outcome.ok:
            body = messages.pack(self.outcome.value)
            self.sealed = [self.number + OK, *body]
        else:
            error = messages.pack_error(self.outcome.value)
            self.sealed = [self.number + FAILED, error]


class PortalServer(ThreadedServer):
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
        del identity, encrypt  # Portal compares and encrypts nothing.
        super().__init__(name, settings)
        self._address = messages.require_loopback(addr, keys)
        self._queued_bytes = 0

    def _open(self) -> None:
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
                f'{self._name} cannot listen at port {self._address.port}: {e}.',
                self._address.text,
            ) from e

    def _serve(self) -> None:
        while self._turn():
            pass

    def _stop(self) -> None:
        self._socket.recvq.put(None)

    def _release(self) -> None:
        self._socket.shutdown()
        self._socket.close()

    def _deliver(self, task: Task) -> None:
        self._socket.recvq.put(task)

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
            name, rows, rest = messages.read_method(data[U64:])
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


def _try_to_bind(port: int) -> None:
    """Raises OSError for a taken port; portal would also leak its socket."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(('127.0.0.1', port))
