"""Portal client: our futures and repeats over the client socket of portal."""

import threading
import time
from collections.abc import Callable
from typing import Any

from portal import client_socket

from embodied.core.errors import ConfigError

from ..errors import Disconnected, MessageError, Timeout
from ..futures import Future
from ..handshake.identity import Identity
from ..interface import Client, Resolver, Settings
from ..keys import ClientKeys
from . import messages

__all__ = ['PortalClient']

U64 = 8
UNBOUNDED = 10**6  # messages; portal's own limits end the client


class Call:
    """A request that is not answered yet."""

    def __init__(self, future: Future, buffers: list, deadline: float | None) -> None:
        self.future = future
        self.buffers = buffers
        self.deadline = deadline
        self.connection = 0  # number of the one that it was sent on


class PortalClient(Client):
    """Calls a portal server; options as for `WireClient`."""

    def __init__(
        self,
        addr: str | int | Resolver,
        name: str = 'Client',
        maxinflight: int = 16,
        timeout: float | None = None,
        resend: bool = True,
        identity: Identity | None = None,
        keys: ClientKeys | None = None,
        encrypt: bool = True,
        settings: Settings | None = None,
    ) -> None:
        del identity, encrypt  # Portal compares and encrypts nothing.
        address = messages.require_loopback(addr, keys)
        if maxinflight < 1:
            raise ConfigError(f'maxinflight={maxinflight}, it must be at least 1.')
        self._name = name
        self._maxinflight = maxinflight
        self._timeout = timeout
        self._resend = resend
        self._changed = threading.Condition()
        self._calls: dict[int, Call] = {}
        self._by_future: dict[int, Call] = {}
        self._number = 0
        self._connection = 0
        self._connected = False
        self._error: Exception | None = None
        self._dropped: list[Exception] = []
        self._socket = client_socket.ClientSocket(
            f'127.0.0.1:{address.port}',
            name,
            start=False,
            max_msg_size=(settings or Settings()).max_message,
            max_send_queue=UNBOUNDED,
            max_recv_queue=UNBOUNDED,
            logging=False,
        )
        self._socket.callbacks_recv.append(self._receive)
        self._socket.callbacks_conn.append(self._connect)
        self._socket.callbacks_disc.append(self._lose)
        self._socket.start()

    @property
    def connected(self) -> bool:
        return self._connected

    def connect(self, timeout: float | None = None) -> None:
        with self._changed:
            done = lambda: self._connected or self._error
            if not self._changed.wait_for(done, timeout):
                raise Timeout(f'No portal server answered {self._name}.')
            if self._error:
                raise self._error

    def call(self, method: str, *args: Any, rows: int = 0) -> Future:
        if self._dropped:
            raise self._dropped.pop(0)
        buffers = [messages.write_method(method, rows), *messages.pack(args)]
        deadline = None if self._timeout is None else time.monotonic() + self._timeout
        call = Call(Future(self), buffers, deadline)
        with self._changed:
            free = lambda: len(self._calls) < self._maxinflight or self._error
            if not self._changed.wait_for(free, self._timeout):
                raise Timeout(
                    f'{self._maxinflight} earlier calls of {self._name} were not '
                    f'answered within {self._timeout} s.'
                )
            if self._error:
                raise self._error
            number, self._number = self._number, self._number + 1
            self._calls[number] = call
            self._by_future[id(call.future)] = call
            if self._connected:
                self._send(number, call)
        return call.future

    def close(self) -> None:
        with self._changed:
            first = self._error is None
            self._error = Disconnected(f'{self._name} was closed.')
        for number in list(self._calls):
            self._finish(number, None, self._error)
        if first:
            self._socket.close()

    # For futures.

    def wait(self, future: Future, timeout: float | None) -> None:
        call = self._by_future.get(id(future))
        until = [] if timeout is None else [time.monotonic() + timeout]
        if call is not None and call.deadline is not None:
            until.append(call.deadline)
        left = min(until) - time.monotonic() if until else None
        with self._changed:
            self._changed.wait_for(future.is_complete, left)
        overdue = call and call.deadline and call.deadline <= time.monotonic()
        if overdue and not future.is_complete():
            numbers = [n for n, c in self._calls.items() if c is call]
            error = Timeout(f'Not answered within {self._timeout} s.')
            for number in numbers:
                self._finish(number, None, error)

    def watch(self, future: Future, fn: Callable[[Future], None]) -> bool:
        with self._changed:
            if future.is_complete():
                return False
            future.callbacks += (fn,)
        return True  # Portal reads all the time.

    def dropped(self, error: Exception) -> None:
        if not isinstance(error, Disconnected):
            self._dropped.append(error)

    # Called by portal's thread.

    def _connect(self) -> None:
        with self._changed:
            self._connected = True
            self._connection += 1
            for number, call in self._calls.items():
                self._send(number, call)
            self._changed.notify_all()

    def _lose(self) -> None:
        with self._changed:
            self._connected = False
            sent = [n for n, call in self._calls.items() if call.connection]
        if not self._resend:
            for number in sent:
                self._finish(number, None, Disconnected(f'{self._name}: server lost.'))

    def _receive(self, data: Any) -> None:
        self._socket.recvq.get_nowait()  # The copy for those who do not use callbacks.
        number = int.from_bytes(data[:U64], 'little')
        ok = not int.from_bytes(data[U64 : 2 * U64], 'little')
        try:
            if ok:
                self._finish(number, messages.unpack(data[2 * U64 :]), None)
            else:
                self._finish(number, None, messages.unpack_error(data[2 * U64 :]))
        except MessageError as e:
            self._finish(number, None, e)

    def _send(self, number: int, call: Call) -> None:
        if call.connection == self._connection:
            return
        try:
            self._socket.send(number.to_bytes(U64, 'little'), *call.buffers, timeout=0)
        except TimeoutError:
            return  # Just lost; `_connect` sends it again.
        call.connection = self._connection

    def _finish(self, number: int, value: Any, error: Exception | None) -> None:
        with self._changed:
            call = self._calls.pop(number, None)
            if call is None:
                return
            self._by_future.pop(id(call.future), None)
            call.future.complete(value, error)
            self._changed.notify_all()
        for fn in call.future.callbacks:
            fn(call.future)
