"""Requests: what a server does with messages, whatever wire they came through.

Messages arrive in the thread of the loop. Replies are sent by the thread that ran the
handler: handing them to the loop would cost two more context switches per call.
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
from .handshake_server import ServerHandshake
from .interface import Request, Settings
from .security import WarnOnce
from .sessions import Peer, Peers, Session
from .wires.event_loop import Loop
from .wires.wire import ServerConnection

__all__ = ['RequestHandler']

log = logging.getLogger(__name__)

REQUEST, REPLY, ERROR = Kind.REQUEST, Kind.REPLY, Kind.ERROR  # faster to look up


class WireJob(Job):
    """A request that came through a wire."""

    sealed: Sequence = ()  # frames of the reply
    receiver: Peer | None = None  # for whom they were made

    def __init__(self, exchange: 'RequestHandler', peer: Peer, parcel: Message) -> None:
        _, self.number, _, self.rows, places, schema, data, buffers, _, _ = parcel
        self._exchange = exchange
        self._parcel = parcel
        self._reader = peer.reader
        self.session = session = peer.session
        self.client = session.key
        self.nbytes = len(data) + (sum(map(len, buffers)) if buffers else 0)
        self.arrived = time.monotonic()
        if not places:
            self.schema, self.data = schema, data

    @property
    def request(self) -> Request:
        session, parcel = self.session, self._parcel
        repeat = parcel.flags & REPEAT != 0
        return Request(session.label, session.name, self.number, repeat, self.rows)

    def load(self) -> tuple:
        args = unpack_value(self._parcel, self._reader)
        if not isinstance(args, tuple):
            raise MessageError('The arguments of a call are a tuple.')
        return args

    def seal(self) -> None:
        peer = self.session.peer
        if peer is not None and not self.unanswered:
            assert self.outcome is not None
            self.sealed = self._exchange.pack_outcome(peer, self.number, self.outcome)
            self.receiver = peer


class RequestHandler:
    """Peers, requests and replies. The host of ports and a clock of the loop.

    Only `deliver` and `pack_outcome` are called by other threads.
    """

    def __init__(
        self,
        name: str,
        loop: Loop,
        methods: Methods,
        reception: ServerHandshake,
        settings: Settings,
        logbook: WarnOnce,
    ) -> None:
        self.pool = SlabPool(settings.slab_bytes)
        self._name = name
        self._loop = loop
        self._methods = methods
        self._reception = reception
        self._settings = settings
        self._logbook = logbook
        self._epoch = secrets.randbits(63)
        self._lock = threading.Lock()  # of peers and their sessions
        self.peers = Peers(settings)
        self._queued_bytes = 0
        loop.add_clock(self)

    def close(self) -> None:
        self.pool.close()
        self._reception.close()

    # Clock.

    def deadline(self) -> float:
        return min(self._methods.deadline(), self.peers.due)

    def run_due(self, now: float) -> None:
        self._methods.run_due()
        with self._lock:
            self.peers.run_due(now)

    # ConnectionHandler of ports.

    def received(self, link: ServerConnection, frames: list) -> None:
        try:
            parcel = unpack(frames)
            if parcel.kind == REQUEST and link.peer is not None:
                self._request(link.peer, parcel)
            else:
                self._dispatch(link, parcel)
        except MessageError as e:
            self.broken(link, str(e))

    def broken(self, link: ServerConnection, reason: str) -> None:
        self._logbook.warn(f'malformed message from {link.name}', reason)

    def slow(self, link: ServerConnection) -> None:
        log.warning('%s does not read its replies, given up.', _name_of(link))

    def lost(self, link: ServerConnection) -> None:
        if link.peer is not None:
            self._drop(link.peer)

    # Messages.

    def _dispatch(self, link: ServerConnection, parcel: Message) -> None:
        """Takes a message that is not a request, or comes too early."""
        peer = link.peer
        if parcel.kind == Kind.HELLO:
            self._greet(link, parcel)
        elif peer is None:
            self._send(link, Message(Kind.UNKNOWN))
        elif parcel.kind == Kind.RELEASE:
            self.pool.release(parcel.number, peer)
        elif parcel.kind == Kind.MAPPED:
            peer.maps_slabs = self._settings.slab_bytes > 0
        elif parcel.kind == Kind.BYE:
            self._drop(peer, for_good=True)
        else:
            raise MessageError(f'A client sent a message of kind {parcel.kind}.')

    def _greet(self, link: ServerConnection, parcel: Message) -> None:
        answer, guest = self._reception.greet(link.name, unpack_value(parcel))
        if guest is not None:
            with self._lock:
                peer, replaced = self.peers.greet(link, guest.session, guest.name)
            if replaced is not None:
                self._drop(replaced)
            release = functools.partial(self._release, link)
            peer.reader = guest.reader(release)
        if answer is not None:
            self._send(link, answer)

    def _release(self, link: ServerConnection, number: int) -> None:
        """For finalizers, so it must take no lock: the loop tells the peer."""
        parcel = Message(Kind.RELEASE, number)
        self._loop.call(functools.partial(self._send, link, parcel))

    def _request(self, peer: Peer, parcel: Message) -> None:
        job = WireJob(self, peer, parcel)
        number, session = job.number, job.session
        method = self._methods.get(parcel.method)
        with self._lock:
            if number in session.running:
                return  # A repeat of what is being served; the answer finds its way.
            outcome = self._stored(session, parcel) if session.stored else None
            if outcome is None:
                outcome = self._objection(method, parcel.method, job)
            if outcome is None:
                session.running[number] = job
                self._queued_bytes += job.nbytes
        if outcome is not None:
            self._answer(peer, number, outcome)
            return
        try:
            assert method is not None
            self._methods.submit(method, job)
        except MessageError as e:
            job.fail(e)
            self._end([job], once=False)
            self._answer(peer, number, failure(e))

    def _stored(self, session: Session, parcel: Message) -> Outcome | None:
        session.prune(parcel.mark)
        return session.stored.get(parcel.number)

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

    def _drop(self, peer: Peer, for_good: bool = False) -> None:
        with self._lock:
            self.peers.remove(peer, time.monotonic(), for_good)
            gone = peer.session.peer is None
        if peer.link.peer is peer:
            peer.link.peer = None
        self.pool.drop(peer)
        if gone:
            self._methods.forget(peer.session.key)

    # Replies.

    def deliver(self, task: Task) -> None:
        """Sends the replies of a finished task, at once or in the loop."""
        if len(task.jobs) > 1 and not self._loop.inside:
            # Every system call gives up the interpreter. Two threads that both make
            # many hand it to and fro each time, which costs more than the calls.
            self._loop.call(functools.partial(self._deliver, task))
        else:
            self._deliver(task)

    def _deliver(self, task: Task) -> None:
        jobs: list[Any] = task.jobs
        for job in jobs:
            if job.receiver is not None:
                job.receiver.link.send(job.sealed)
        for job in self._end(jobs, task.method.once):
            assert job.outcome is not None
            # The client came back through another connection, or left.
            if job.receiver is not None:
                self.pool.drop(job.receiver)
            if (peer := job.session.peer) is not None:
                self._answer(peer, job.number, job.outcome)
        if self._methods.finished(task) and not self._loop.inside:
            self._loop.call(_look_again)

    def pack_outcome(self, peer: Peer, number: int, outcome: Outcome) -> list:
        """The frames of a reply to a peer."""
        kind = REPLY if outcome.ok else ERROR
        pool = self.pool if peer.maps_slabs else None
        limit = self._settings.max_message
        content = prepare(outcome.value, pool, peer, limit)
        return make_frames(kind, content, number, self._epoch)

    def _end(self, jobs: list[WireJob], once: bool) -> list[WireJob]:
        """Takes note that jobs are done; returns those whose client moved."""
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
                if job.receiver is None or job.receiver is not session.peer:
                    moved.append(job)
        return moved

    def _answer(self, peer: Peer, number: int, outcome: Outcome) -> None:
        try:
            frames = self.pack_outcome(peer, number, outcome)
        except MessageError as e:
            frames = self.pack_outcome(peer, number, failure(e))
        peer.link.send(frames)

    def _send(self, link: ServerConnection, parcel: Message) -> None:
        link.send(parcel.frames(mark=self._epoch))


def _look_again() -> None:
    """Nothing: it only wakes the loop, which then looks at its clocks."""


def _name_of(link: ServerConnection) -> str:
    return link.peer.session.name if link.peer is not None else link.name
