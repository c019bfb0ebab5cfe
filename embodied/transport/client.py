"""Client: calls over our own wires that survive lost connections and servers.

Threads send and read by themselves, see `reader.py`. A thread of the client looks after
everything else, see `connection_keeper.py`.
"""

import collections
import functools
import math
import secrets
import time
from collections.abc import Callable
from typing import Any

from embodied.core.errors import ConfigError

from .codec.encoding import prepare, unpack_value
from .codec.frames import REPEAT, Content, Kind, Message, make_frames
from .codec.shared_memory import SlabGone, SlabPool, SlabReader
from .connection_keeper import ConnectionKeeper
from .errors import Disconnected, MessageError, Refused, RemoteError, Timeout
from .futures import Future, Waiter
from .handshake.client_side import ClientHandshake
from .handshake.identity import Identity
from .interface import Client, Resolver, Settings
from .keys import ClientKeys
from .reader import SharedReader
from .wires.connection import ClientConnection
from .wires.dialer import Dialer
from .wires.wake_queue import WakeQueue

__all__ = ['WireClient']

MAX_METHOD, MAX_ROWS = 60, 2**32 - 1
REQUEST, REPLY, ERROR = Kind.REQUEST, Kind.REPLY, Kind.ERROR  # faster to look up


class Call(Future):
    """A request, until it is answered, and its answer."""

    deadline: float | None = None
    sent = False
    number = 0
    content: Content | None = None
    holder: object = None  # the connection that the content was prepared for

    def __init__(self, client: Waiter, method: bytes, args: tuple, rows: int) -> None:
        self._waiter = client
        self.method = method
        self.args = args
        self.rows = rows


class WireClient(Client):
    """Calls a server, reconnects when it is lost and repeats what is unanswered.

    addr: the address of the server, or a function that returns it and is called before
    each attempt to connect. timeout: the deadline of every call in seconds. Without
    `resend`, calls end with Disconnected when the connection is lost.
    """

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
        if maxinflight < 1:
            raise ConfigError(f'maxinflight={maxinflight}, it must be at least 1.')
        self._name = name
        self._maxinflight = maxinflight
        self._timeout = timeout
        self._resend = resend
        self._settings = settings = settings or Settings()
        queue = WakeQueue()
        wake = functools.partial(queue.put, None)
        self._dialer = Dialer(addr, keys, encrypt, settings, wake)
        self._reader = SharedReader(name, self._handle, lambda: self._keeper.lose())
        self._lock = self._reader.lock  # guards everything below
        self._keeper = ConnectionKeeper(name, self, self._reader, self._dialer, queue)
        self._calls: dict[int, Call] = {}  # by number, in order
        self._number = 0
        self._error: Exception | None = None  # why no call will ever be answered
        self._callbacks: collections.deque[Callable[[], None]] = collections.deque()
        self._dropped: collections.deque[Exception] = collections.deque()
        session = secrets.token_bytes(16)
        self._handshake = ClientHandshake(name, session, identity, keys, settings)
        self._pool = SlabPool(settings.slab_bytes)
        # The server, as of the last handshake.
        self._connection: ClientConnection | None = None
        self._connected = False
        self._epoch = 0
        self._server = ''  # its name
        self._server_maps_ours = False
        self._slabs: SlabReader | None = None
        self._holder = object()  # stands for the connection in the pool
        self._keeper.start()

    @property
    def connected(self) -> bool:
        return self._connected

    def connect(self, timeout: float | None = None) -> None:
        if not self._block(lambda: self._connected or bool(self._error), timeout):
            raise Timeout(
                f'No server answered {self._name} at {self._dialer.endpoint} within '
                f'{timeout} s. Is it running, and do both sides use the same keys?'
            )
        if self._error:
            raise self._error

    def call(self, method: str, *args: Any, rows: int = 0) -> Future:
        if self._dropped:
            raise self._dropped.popleft()
        call = Call(self, method.encode(), args, rows)
        if len(call.method) > MAX_METHOD or not 0 <= rows <= MAX_ROWS:
            raise MessageError(f'Not a method and a number of rows: {method!r}, {rows}')
        if self._timeout is not None:
            call.deadline = time.monotonic() + self._timeout
        self._pack(call)
        with self._lock:
            room = len(self._calls) < self._maxinflight
            if room:
                self._add(call)
        if not room:
            self._add_when_room(call)
        if self._callbacks:
            self.run_callbacks()
        return call

    def close(self) -> None:
        with self._lock:
            self.fail(Disconnected(f'{self._name} was closed.'))
        self.run_callbacks()
        self._keeper.call(self._leave)
        self._keeper.stop()
        self._pool.close()
        self._handshake.close()

    # For futures.

    def wait(self, future: Future, timeout: float | None) -> None:
        self._block(future.is_complete, timeout)

    def watch(self, future: Future, fn: Callable[[Future], None]) -> bool:
        with self._lock:
            if future.is_complete():
                return False
            future.callbacks += (fn,)
            self._reader.watched = True
        self._keeper.wake()
        return True

    def dropped(self, error: Exception) -> None:
        if not isinstance(error, Disconnected):
            self._dropped.append(error)

    # For the keeper, with the lock unless noted.

    @property
    def failed(self) -> bool:
        return self._error is not None

    def begin(self, connection: ClientConnection) -> None:
        self._connection = connection
        if not self._error:
            self._send(self._handshake.opening().frames())

    def pause(self) -> None:
        self._connection = None
        self._forget_server()

    def next_deadline(self) -> float:
        dues = [c.deadline for c in self._calls.values() if c.deadline is not None]
        return min(dues, default=math.inf)

    def expire(self, now: float) -> None:
        for call in list(self._calls.values()):
            if call.deadline is not None and call.deadline <= now:
                error = Timeout(
                    f'{call.method.decode()} was not answered within {self._timeout} s.'
                )
                self._finish(call.number, None, error)

    def fail(self, error: Exception) -> None:
        if self._error is None:
            self._error = error
        self._connected = False
        for number in list(self._calls):
            self._finish(number, None, self._error)
        self._reader.notify()

    def run_callbacks(self) -> None:
        """Runs what completed calls have left; without the lock."""
        while self._callbacks:
            self._callbacks.popleft()()

    # Calls.

    def _block(
        self,
        done: Callable[[], bool],
        timeout: float | None,
        then: Callable[[], None] | None = None,
    ) -> bool:
        """Waits for `done`; False when it is not within `timeout` seconds."""
        try:
            return self._reader.block(done, timeout, then)
        finally:
            if self._reader.watched or not self._connected:
                self._keeper.wake()  # It may have to read from now on.
            if self._callbacks:
                self.run_callbacks()

    def _pack(self, call: Call) -> None:
        call.holder = holder = self._holder
        pool = self._pool if self._server_maps_ours else None
        call.content = prepare(call.args, pool, holder, self._settings.max_message)
        buffers = call.content[-1]
        if buffers and sum(map(len, buffers)) > self._settings.max_queued:
            raise MessageError(
                f'A request of more than {self._settings.max_queued} bytes, which no '
                f'server takes; split it.'
            )

    def _has_room(self) -> bool:
        return len(self._calls) < self._maxinflight or self._error is not None

    def _add_when_room(self, call: Call) -> None:
        if not self._block(self._has_room, self._timeout, lambda: self._add(call)):
            raise Timeout(
                f'{self._maxinflight} earlier calls of {self._name} were not answered '
                f'within {self._timeout} s.'
            )

    def _add(self, call: Call) -> None:
        if self._error:
            raise self._error
        self._number += 1
        call.number = self._number
        self._calls[call.number] = call
        if self._connected:
            self._transmit(call)
            connection = self._connection
            if connection is not None and connection.swallows_signals:
                self._reader.catch_up()
        if call.deadline is not None and call.deadline < self._keeper.due:
            self._keeper.wake()

    def _transmit(self, call: Call) -> None:
        if call.holder is not self._holder:
            self._pool.drop(call.holder)
            self._pack(call)
        assert call.content is not None
        flags, oldest = REPEAT if call.sent else 0, next(iter(self._calls))
        frames = make_frames(
            REQUEST, call.content, call.number, oldest, flags, call.method, call.rows
        )
        if self._send(frames):
            call.sent = True

    def _send(self, frames: list) -> bool:
        connection = self._connection
        if connection is None:
            return False
        sent = connection.send(frames)
        if connection.unsent:
            self._keeper.wake()
        return sent

    def _finish(self, number: int, value: Any, error: Exception | None) -> None:
        call = self._calls.pop(number, None)
        if call is None:
            return  # Its deadline has passed, or a repeat was answered.
        call.args, call.content = (), None
        call.complete(value, error)
        if call.callbacks:
            callbacks = [functools.partial(fn, call) for fn in call.callbacks]
            self._callbacks.extend(callbacks)
        self._reader.notify()

    def _leave(self) -> None:
        self._send(Message(Kind.CLOSE).frames())

    # Messages.

    def _handle(self, message: Message) -> None:
        kind, number, _, _, _, _, _, _, _, mark = message
        if kind != REPLY and kind != ERROR:
            self._handle_other(message)
            return
        if mark != self._epoch:
            return  # From before a restart; the request was sent again.
        value: Any = None
        error: Exception | None = None
        try:
            value = unpack_value(message, self._slabs)
            if kind == ERROR:
                value, error = None, self._remote_error(value)
        except SlabGone:
            return  # With its server; the request is sent again to the next one.
        except (MessageError, TypeError, KeyError) as e:
            error = MessageError(f'Unreadable answer: {e}')
        self._finish(number, value, error)

    def _handle_other(self, message: Message) -> None:
        """Handles a message that is not the answer to a call."""
        if message.kind == Kind.RELEASE:
            self._pool.release(message.number, self._holder)
        elif message.kind == Kind.ACCEPTED:
            self._accept(message)
        elif message.kind == Kind.CHALLENGE:
            self._prove(message)
        elif message.kind == Kind.REFUSED:
            refusal = self._handshake.refusal(message)
            if refusal:
                self.fail(refusal)
        elif message.kind == Kind.UNKNOWN:
            if self._connected:
                self._forget_server()
                self._send(self._handshake.opening().frames())
        elif message.kind == Kind.OPEN:
            # TCP can connect a port to itself, which would also keep the server from
            # ever binding to it.
            if self._connection is not None:
                self._connection.disconnect()
                self._keeper.wake()
        elif message.kind != Kind.PROBE:
            raise MessageError(f'A server sent a message of kind {message.kind}.')

    def _remote_error(self, description: Any) -> RemoteError:
        return RemoteError(
            description['reason'],
            description['text'],
            self._server,
            description['kind'],
            description['errno'],
        )

    def _accept(self, message: Message) -> None:
        try:
            accepted = self._handshake.accepted(message)
        except Refused as e:
            self.fail(e)
            return
        if accepted is None or self._error:
            return
        self._epoch = message.mark
        self._server = accepted.server
        self._server_maps_ours = accepted.server_maps_ours
        if accepted.server_pid is not None:
            self._slabs = SlabReader(accepted.server_pid, self._make_release())
            self._send(Message(Kind.MAPPED).frames())
        self._connected = True
        for call in list(self._calls.values()):
            call.holder = None  # Pack again: the server may map our slabs now.
            try:
                self._transmit(call)
            except MessageError as e:  # It fitted into a slab, but into no message.
                self._finish(call.number, None, e)
        self._reader.notify()

    def _prove(self, message: Message) -> None:
        try:
            proof = self._handshake.proof(message)
        except Refused as e:
            self.fail(e)
            return
        if proof is not None:
            self._send(proof.frames())

    def _make_release(self) -> Callable[[int], None]:
        """A function for finalizers, so it takes no lock: the keeper sends."""
        holder, keeper = self._holder, self._keeper
        return lambda number: keeper.call(
            functools.partial(self._release, holder, number)
        )

    def _release(self, holder: object, number: int) -> None:
        if holder is self._holder:
            self._send(Message(Kind.RELEASE, number).frames())

    def _forget_server(self) -> None:
        """Unanswered calls wait for the next handshake, or end."""
        self._connected = False
        self._pool.drop(self._holder)
        self._holder = object()
        self._slabs = None
        self._server_maps_ours = False
        if not self._resend:
            error = Disconnected(
                f'{self._name} lost the server at {self._dialer.endpoint}.'
            )
            for call in [call for call in self._calls.values() if call.sent]:
                self._finish(call.number, None, error)
        self._reader.notify()
