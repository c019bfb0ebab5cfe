"""Client: calls over our own wires that survive lost connections and servers.

Threads send and read by themselves, see `SharedReader`. A keeper thread looks after
the connection, deadlines, releases of slabs and futures with callbacks.
"""

import collections
import functools
import logging
import math
import secrets
import threading
import time
from collections.abc import Callable
from typing import Any

from embodied.core.errors import ConfigError

from . import addresses, security
from . import handshake_identity as hello
from .codec.encoding import prepare, unpack_value
from .codec.frames import REPEAT, Content, Kind, Message, make_frames
from .codec.shared_memory import SlabGone, SlabPool, SlabReader
from .errors import Disconnected, MessageError, Refused, RemoteError, Timeout
from .futures import Future, Waiter
from .handshake_client import ClientHandshake
from .interface import Client, Settings
from .keys import ClientKeys
from .reader import SharedReader
from .wires.dialing import open_connection
from .wires.wake_queue import WakeQueue

__all__ = ['WireClient']

log = logging.getLogger(__name__)

MAX_METHOD, MAX_ROWS = 60, 2**32 - 1
WAKE, STOP = 'wake', 'stop'
REQUEST, REPLY, ERROR = Kind.REQUEST, Kind.REPLY, Kind.ERROR  # faster to look up


class Call(Future):
    """A request, until it is answered, and its answer."""

    deadline: float | None = None
    sent = False
    number = 0
    content: Content | None = None
    holder: object = None  # connection that the content was prepared for

    def __init__(self, client: Waiter, method: bytes, args: tuple, rows: int) -> None:
        self._waiter = client
        self.method = method
        self.args = args
        self.rows = rows


class WireClient(Client):
    """Calls a server, reconnects when it is lost and repeats what is unanswered.

    `timeout` is the deadline of every call in seconds. Without `resend`, calls end
    with Disconnected when the connection is lost.
    """

    def __init__(
        self,
        addr: str | int,
        name: str = 'Client',
        maxinflight: int = 16,
        timeout: float | None = None,
        resend: bool = True,
        identity: hello.Identity | None = None,
        keys: ClientKeys | None = None,
        encrypt: bool = True,
        settings: Settings | None = None,
    ) -> None:
        address = addresses.parse(addr)
        security.require_keys(address, keys, encrypt)
        self._local = address.local
        if maxinflight < 1:
            raise ConfigError(f'maxinflight={maxinflight}, it must be at least 1.')
        self._name = name
        self._maxinflight = maxinflight
        self._timeout = timeout
        self._resend = resend
        self._settings = settings or Settings()
        self._wire = open_connection(
            address, keys, encrypt, self._settings, self._changed
        )
        self._line = SharedReader(self._wire, self._handle)
        self._lock = self._line.lock  # guards everything below
        self._calls: dict[int, Call] = {}  # by number, in order
        self._number = 0
        self._greeting = ClientHandshake(
            name, secrets.token_bytes(16), identity, keys, self._settings
        )
        self._pool = SlabPool(self._settings.slab_bytes)
        self._holder = object()  # stands for the current connection in the pool
        self._reader: SlabReader | None = None
        self._server = ''  # its name
        self._server_maps_ours = False
        self._ready = False
        self._epoch = 0
        self._error: Exception | None = None  # why no call will ever be answered
        self._keeper_due = math.inf  # when the keeper looks at deadlines again
        self._due: collections.deque[Callable[[], None]] = collections.deque()
        self._dropped: collections.deque[Exception] = collections.deque()
        self._keeper_mail = WakeQueue()
        self._keeper = threading.Thread(
            target=self._keep, name=f'{name}-keeper', daemon=True
        )
        self._keeper.start()

    @property
    def connected(self) -> bool:
        return self._ready

    def connect(self, timeout: float | None = None) -> None:
        if not self._block(lambda: self._ready or bool(self._error), timeout):
            raise Timeout(
                f'No server answered {self._name} at {self._line.endpoint} within '
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
                self._begin(call)
        if not room:
            self._begin_when_room(call)
        if self._due:
            self._run_callbacks()
        return call

    def move(self, addr: str | int) -> None:
        address = addresses.parse(addr)
        if address.local != self._local:
            raise ConfigError(
                f'{self._name} cannot move from {self._line.endpoint} to '
                f'{address.text}: one of them is only for this machine.'
            )
        with self._lock:
            self._line.move(address)
            self._lose()
        self._keeper_mail.put(WAKE)

    def close(self) -> None:
        with self._lock:
            self._fail(Disconnected(f'{self._name} was closed.'))
        self._run_callbacks()
        self._keeper_mail.put(STOP)
        self._keeper.join()

    # For futures.

    def wait(self, future: Future, timeout: float | None) -> None:
        self._block(future.is_complete, timeout)

    def watch(self, future: Future, fn: Callable[[Future], None]) -> bool:
        with self._lock:
            if future.is_complete():
                return False
            future.callbacks += (fn,)
            self._line.watched = True
        self._keeper_mail.put(WAKE)
        return True

    def dropped(self, error: Exception) -> None:
        if not isinstance(error, Disconnected):
            self._dropped.append(error)

    def _block(
        self,
        done: Callable[[], bool],
        timeout: float | None,
        then: Callable[[], None] | None = None,
    ) -> bool:
        """Waits for `done`; False when it is not within `timeout` seconds."""
        try:
            return self._line.block(done, timeout, then)
        finally:
            if self._line.watched or not self._ready:
                self._keeper_mail.put(WAKE)  # It may be its turn to read.
            if self._due:
                self._run_callbacks()

    def _run_callbacks(self) -> None:
        """To be called without the lock after anything that completes calls."""
        while self._due:
            self._due.popleft()()

    # Calls.

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

    def _begin_when_room(self, call: Call) -> None:
        if not self._block(self._has_room, self._timeout, lambda: self._begin(call)):
            raise Timeout(
                f'{self._maxinflight} earlier calls of {self._name} were not answered '
                f'within {self._timeout} s.'
            )

    def _begin(self, call: Call) -> None:
        if self._error:
            raise self._error
        self._number += 1
        call.number = self._number
        self._calls[call.number] = call
        if self._ready:
            self._transmit(call)
            if self._wire.swallows_signals:
                self._line.catch_up()
        if call.deadline is not None and call.deadline < self._keeper_due:
            self._keeper_mail.put(WAKE)

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
        sent = self._wire.send(frames)
        if self._wire.unsent:
            self._keeper_mail.put(WAKE)
        return sent

    def _finish(self, number: int, value: Any, error: Exception | None) -> None:
        call = self._calls.pop(number, None)
        if call is None:
            return  # Its deadline passed, or a repeat was answered.
        call.args, call.content = (), None
        call.complete(value, error)
        if call.callbacks:
            self._due.extend([functools.partial(fn, call) for fn in call.callbacks])
        self._line.tell()

    def _fail(self, error: Exception) -> None:
        """No call will be answered any more."""
        if self._error is None:
            self._error = error
        self._ready = False
        for number in list(self._calls):
            self._finish(number, None, self._error)
        self._line.tell()

    # Messages and events.

    def _handle(self, parcel: Message) -> None:
        kind, number, _, _, _, _, _, _, _, mark = parcel
        if kind != REPLY and kind != ERROR:
            self._handle_rest(parcel)
            return
        if mark != self._epoch:
            return  # From before a restart; the request was sent again.
        value: Any = None
        error: Exception | None = None
        try:
            value = unpack_value(parcel, self._reader)
            if kind == ERROR:
                value, error = None, self._remote_error(value)
        except SlabGone:
            return  # With its server; the request is sent again to the next one.
        except (MessageError, TypeError, KeyError) as e:
            error = MessageError(f'Unreadable answer: {e}')
        self._finish(number, value, error)

    def _handle_rest(self, parcel: Message) -> None:
        """What is no answer to a call."""
        if parcel.kind == Kind.RELEASE:
            self._pool.release(parcel.number, self._holder)
        elif parcel.kind == Kind.WELCOME:
            self._welcomed(parcel)
        elif parcel.kind == Kind.CHALLENGE:
            self._challenged(parcel)
        elif parcel.kind == Kind.REFUSED:
            refusal = self._greeting.refusal(parcel)
            if refusal:
                self._fail(refusal)
        elif parcel.kind == Kind.UNKNOWN:
            if self._ready:
                self._lose()
                self._send(self._greeting.hello().frames())
        elif parcel.kind == Kind.HELLO:
            # TCP can connect a port to itself, which would also keep the server from
            # ever binding to it.
            self._line.reconnect()
        elif parcel.kind != Kind.PROBE:
            raise MessageError(f'A server sent a message of kind {parcel.kind}.')

    def _remote_error(self, words: Any) -> RemoteError:
        message, text, kind = words['message'], words['text'], words.get('kind', '')
        return RemoteError(message, text, self._server, kind)

    def _welcomed(self, parcel: Message) -> None:
        try:
            welcome = self._greeting.welcome(parcel)
        except Refused as e:
            self._fail(e)
            return
        if welcome is None or self._error:
            return
        self._epoch = parcel.mark
        self._server = welcome.server
        self._server_maps_ours = welcome.server_maps_ours
        if welcome.server_pid is not None:
            self._reader = SlabReader(welcome.server_pid, self._note_release())
            self._send(Message(Kind.MAPPED).frames())
        self._ready = True
        for call in list(self._calls.values()):
            call.holder = None  # Pack again: the server may map our slabs now.
            try:
                self._transmit(call)
            except MessageError as e:  # It fitted into a slab, but into no message.
                self._finish(call.number, None, e)
        self._line.tell()

    def _note_release(self) -> Callable[[int], None]:
        """For finalizers, so it must take no lock: the keeper tells the server."""
        holder, mail = self._holder, self._keeper_mail
        return lambda number: mail.put((holder, number))

    def _challenged(self, parcel: Message) -> None:
        try:
            answer = self._greeting.prove(parcel)
        except Refused as e:
            self._fail(e)
            return
        if answer is not None:
            self._send(answer.frames())

    def _lose(self) -> None:
        """Forgets a connection; unanswered calls wait for the next one."""
        self._ready = False
        self._pool.drop(self._holder)
        self._holder = object()
        self._reader = None
        self._server_maps_ours = False
        if not self._resend:
            error = Disconnected(
                f'{self._name} lost the server at {self._line.endpoint}.'
            )
            for call in [call for call in self._calls.values() if call.sent]:
                self._finish(call.number, None, error)
        self._line.tell()

    # The keeper.

    def _keep(self) -> None:
        try:
            stop = False
            while not stop:
                stop = self._turn()
        except Exception as e:
            log.error('%s stops.', self._name, exc_info=e)
            with self._lock:
                self._fail(Disconnected(f'{self._name} failed: {e}'))
            self._run_callbacks()
            raise
        finally:
            with self._lock:
                self._line.close()
                self._pool.close()
                self._greeting.close()

    def _turn(self) -> bool:
        with self._lock:
            messages = self._line.watched or not self._ready
            timeout = self._keeper_timeout()
        self._line.watch(self._keeper_mail, messages, timeout)
        mail = self._keeper_mail.take()
        with self._lock:
            self._look()
            for item in mail:
                if isinstance(item, tuple) and item[0] is self._holder:
                    self._send(Message(Kind.RELEASE, item[1]).frames())
            self._line.pump()
            self._expire()
            if STOP in mail:
                self._send(Message(Kind.BYE).frames())
        self._run_callbacks()
        return STOP in mail

    def _look(self) -> None:
        try:
            self._line.look()
        except Refused as e:
            self._fail(e)

    def _changed(self, connected: bool) -> None:
        """A connection began or ended; called by the line, with the lock."""
        # Answers that came before must not be lost with the connection.
        self._line.pump()
        self._lose()
        self._keeper_mail.put(WAKE)
        if connected and not self._error:
            self._send(self._greeting.hello().frames())

    def _keeper_timeout(self) -> float | None:
        dues = [c.deadline for c in self._calls.values() if c.deadline is not None]
        self._keeper_due = min(dues, default=math.inf)
        if self._keeper_due == math.inf:
            return None
        return max(0.0, self._keeper_due - time.monotonic())

    def _expire(self) -> None:
        now = time.monotonic()
        for call in list(self._calls.values()):
            if call.deadline is not None and call.deadline <= now:
                error = Timeout(
                    f'{call.method.decode()} was not answered within {self._timeout} s.'
                )
                self._finish(call.number, None, error)
