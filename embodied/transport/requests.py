"""Requests: what a server does with messages, whatever wire they came through.

Messages arrive in the thread of the loop. Replies are sent by the thread that ran the
handler: to pass them to the loop would cost two more context switches per call.
"""

import functools
import logging
import secrets
import threading
import time
from collections.abc import Sequence
from typing import Any

from .codec.encoding import prepare, unpack_value
from .codec.frames import REPEAT, Kind, Message, make_frames, unpack
from .codec.shared_memory import SlabPool
from .dispatch.jobs import Job, Outcome, failure
from .dispatch.methods import Method, Methods, Task
from .errors import MessageError
from .handshake.server_side import ServerHandshake
from .interface import Request, Settings
from .security import WarnOnce
from .sessions import Session, Sessions
from .wires.connection import ServerConnection
from .wires.event_loop import Loop

__all__ = ['RequestHandler']

log = logging.getLogger(__name__)

REQUEST, REPLY, ERROR = Kind.REQUEST, Kind.REPLY, Kind.ERROR  # faster to look up


class WireJob(Job):
    """A request that came through a wire."""

    sealed: Sequence = ()  # frames of the reply
    receiver: ServerConnection | None = None  # that the frames were made for

    def __init__(
        self,
        handler: 'RequestHandler',
        connection: ServerConnection,
        session: Session,
        message: Message,
    ) -> None:
        _, self.number, _, self.rows, places, schema, data, buffers, _, _ = message
        self._handler = handler
        self._message = message
        self._slabs = connection.slabs
        self.session = session
        self.client = session.key
        self.nbytes = len(data) + (sum(map(len, buffers)) if buffers else 0)
        self.arrived = time.monotonic()
        if not places:
            self.schema, self.data = schema, data

    @property
    def request(self) -> Request:
        session, message = self.session, self._message
        repeat = message.flags & REPEAT != 0
        return Request(session.label, session.name, self.number, repeat, self.rows)

    def load(self) -> tuple:
        args = unpack_value(self._message, self._slabs)
        if not isinstance(args, tuple):
            raise MessageError('The arguments of a call are a tuple.')
        return args

    def seal(self) -> None:
        receiver = self.session.connection
        if receiver is not None and not self.unanswered:
            assert self.outcome is not None
            self.sealed = self._handler.pack(receiver, self.number, self.outcome)
            self.receiver = receiver


class RequestHandler:
    """Sessions, requests and replies of a server.

    It handles what the listeners report, and has deadlines in the loop. Only `deliver`
    and `pack` are called by other threads.
    """

    def __init__(
        self,
        name: str,
        loop: Loop,
        methods: Methods,
        handshake: ServerHandshake,
        settings: Settings,
        warnings: WarnOnce,
    ) -> None:
        self.pool = SlabPool(settings.slab_bytes)
        self._name = name
        self._loop = loop
        self._methods = methods
        self._handshake = handshake
        self._settings = settings
        self._warnings = warnings
        self._epoch = secrets.randbits(63)
        self._lock = threading.Lock()  # of the sessions and of `_queued_bytes`
        self._sessions = Sessions(settings)
        self._queued_bytes = 0
        loop.add_clock(self)

    def close(self) -> None:
        self.pool.close()
        self._handshake.close()

    # For the loop.

    def deadline(self) -> float:
        return min(self._methods.deadline(), self._sessions.due)

    def run_due(self, now: float) -> None:
        self._methods.run_due()
        with self._lock:
            self._sessions.run_due(now)

    # For the listeners.

    def received(self, connection: ServerConnection, frames: list) -> None:
        try:
            message = unpack(frames)
            session = connection.session
            if message.kind == REQUEST and session is not None:
                self._handle_request(connection, session, message)
            else:
                self._handle_other(connection, message)
        except MessageError as e:
            self.malformed(connection, str(e))

    def malformed(self, connection: ServerConnection, reason: str) -> None:
        self._warnings.warn(f'malformed message from {connection.name}', reason)

    def overflowed(self, connection: ServerConnection) -> None:
        name = connection.session.name if connection.session else connection.name
        log.warning('%s does not read its replies and is disconnected.', name)

    def lost(self, connection: ServerConnection) -> None:
        if connection.session is not None:
            self._detach(connection)

    # Messages.

    def _handle_other(self, connection: ServerConnection, message: Message) -> None:
        """Handles a message that is not a request, or comes before the handshake."""
        if message.kind == Kind.OPEN:
            self._shake_hands(connection, message)
        elif connection.session is None:
            self._send(connection, Message(Kind.UNKNOWN))
        elif message.kind == Kind.RELEASE:
            self.pool.release(message.number, connection)
        elif message.kind == Kind.MAPPED:
            connection.maps_slabs = self._settings.slab_bytes > 0
        elif message.kind == Kind.CLOSE:
            self._detach(connection, for_good=True)
        else:
            raise MessageError(f'A client sent a message of kind {message.kind}.')

    def _shake_hands(self, connection: ServerConnection, message: Message) -> None:
        answer, admitted = self._handshake.answer(
            connection.name, unpack_value(message)
        )
        if admitted is not None:
            with self._lock:
                earlier = self._sessions.attach(
                    connection, admitted.session, admitted.name
                )
            if earlier is connection:
                self.pool.drop(connection)  # It begins from the start.
            elif earlier is not None:
                self._detach(earlier)
            release = functools.partial(self._release, connection)
            connection.slabs = admitted.reader(release)
            connection.maps_slabs = False
        if answer is not None:
            self._send(connection, answer)

    def _release(self, connection: ServerConnection, number: int) -> None:
        """For finalizers, so it takes no lock: the loop sends."""
        message = Message(Kind.RELEASE, number)
        self._loop.call(functools.partial(self._send, connection, message))

    def _handle_request(
        self, connection: ServerConnection, session: Session, message: Message
    ) -> None:
        job = WireJob(self, connection, session, message)
        number = job.number
        method = self._methods.get(message.method)
        with self._lock:
            if number in session.running:
                return  # A repeat of a request that is being served.
            outcome = self._stored(session, message) if session.stored else None
            if outcome is None:
                outcome = self._objection(method, message.method, job)
            if outcome is None:
                session.running[number] = job
                self._queued_bytes += job.nbytes
        if outcome is not None:
            self._answer(connection, number, outcome)
            return
        try:
            assert method is not None
            self._methods.submit(method, job)
        except MessageError as e:
            job.fail(e)
            self._end([job], once=False)
            self._answer(connection, number, failure(e))

    def _stored(self, session: Session, message: Message) -> Outcome | None:
        session.prune(message.mark)
        return session.stored.get(message.number)

    def _objection(
        self, method: Method | None, name: bytes, job: WireJob
    ) -> Outcome | None:
        if method is None:
            return failure(MessageError(f'{self._name} has no method {name!r}.'))
        if self._queued_bytes + job.nbytes > self._settings.max_queued:
            return failure(
                MessageError(f'{self._name} is overloaded, try again later.')
            )
        return None

    def _detach(self, connection: ServerConnection, for_good: bool = False) -> None:
        with self._lock:
            now = time.monotonic()
            absent = self._sessions.detach(connection, now, for_good)
        self.pool.drop(connection)
        if absent is not None:
            self._methods.forget(absent.key)

    # Replies.

    def deliver(self, task: Task) -> None:
        """Sends the replies of a finished task, at once or in the loop."""
        if len(task.jobs) > 1 and not self._loop.inside:
            # Every system call releases the interpreter lock. Two threads that make
            # many pass it to and fro each time, which costs more than the calls.
            self._loop.call(functools.partial(self._deliver, task))
        else:
            self._deliver(task)

    def _deliver(self, task: Task) -> None:
        jobs: list[Any] = task.jobs
        for job in jobs:
            if job.receiver is not None:
                job.receiver.send(job.sealed)
        for job in self._end(jobs, task.method.once):
            assert job.outcome is not None
            # The client came back through another connection, or left.
            if job.receiver is not None:
                self.pool.drop(job.receiver)
            if (connection := job.session.connection) is not None:
                self._answer(connection, job.number, job.outcome)
        if self._methods.finished(task) and not self._loop.inside:
            self._loop.call(_do_nothing)  # The loop looks at its deadlines again.

    def pack(self, connection: ServerConnection, number: int, outcome: Outcome) -> list:
        """The frames of a reply for a connection."""
        kind = REPLY if outcome.ok else ERROR
        pool = self.pool if connection.maps_slabs else None
        limit = self._settings.max_message
        content = prepare(outcome.value, pool, connection, limit)
        return make_frames(kind, content, number, self._epoch)

    def _end(self, jobs: list[WireJob], once: bool) -> list[WireJob]:
        """Ends jobs; returns those whose client has changed its connection."""
        moved = []
        with self._lock:
            for job in jobs:
                session, number = job.session, job.number
                session.running.pop(number, None)
                self._queued_bytes -= job.nbytes
                assert job.outcome is not None
                if job.unanswered:
                    continue
                if once:
                    session.store(number, job.outcome)
                if job.receiver is None or job.receiver is not session.connection:
                    moved.append(job)
        return moved

    def _answer(
        self, connection: ServerConnection, number: int, outcome: Outcome
    ) -> None:
        try:
            frames = self.pack(connection, number, outcome)
        except MessageError as e:
            frames = self.pack(connection, number, failure(e))
        connection.send(frames)

    def _send(self, connection: ServerConnection, message: Message) -> None:
        connection.send(message.frames(mark=self._epoch))


def _do_nothing() -> None:
    pass
