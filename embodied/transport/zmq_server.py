"""ZeroMQ server: one I/O thread owns the sockets, the peers and the order of things.

Other threads hand over through the mailbox, which lies in the same blocking poll as
the sockets; its timeout is the next deadline.
"""

import logging
import math
import secrets
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import zmq

from . import addresses, hello, security, sockets
from .batching import Batcher
from .errors import AddressInUse, MessageError
from .interface import MAX_WAIT, Request, Server, Settings
from .jobs import Job, Outcome, failure
from .keys import ServerKeys
from .mailbox import Mailbox
from .methods import Methods, Task
from .packing import pack, unpack_value
from .peers import Peer, Peers
from .reception import Reception
from .slabs import SlabPool
from .wire import REPEAT, Kind, Parcel, unpack

__all__ = ['ZmqServer']

log = logging.getLogger(__name__)

MESSAGES_PER_TURN = 64  # before finished work gets its chance
# A connection's end is announced before its route is gone, so look again later.
SWEEPS = (0.0, 0.02, 0.2, 1.0)
EVENTS = zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL


class ZmqJob(Job):
    """A request that came through ZeroMQ."""

    def __init__(self, server: 'ZmqServer', peer: Peer, parcel: Parcel) -> None:
        self._server = server
        self._parcel: Parcel | None = parcel
        self._reader = peer.reader
        self.session = peer.session
        self.client = peer.session.key
        self.arrived = time.monotonic()
        self.nbytes = parcel.nbytes
        repeat = bool(parcel.flags & REPEAT)
        self.request = Request(
            self.session.label, self.session.name, parcel.number, repeat, parcel.rows
        )
        self.sealed: tuple[Peer, Parcel] | None = None
        if not parcel.places:
            self.schema, self.data = parcel.schema, parcel.data

    def load(self) -> tuple:
        assert self._parcel is not None
        parcel, self._parcel = self._parcel, None
        args = unpack_value(parcel, self._reader)
        if not isinstance(args, tuple):
            raise MessageError('The arguments of a call are a tuple.')
        return args

    def seal(self) -> None:
        peer = self.session.peer
        if peer is not None:
            assert self.outcome is not None
            parcel = self._server.pack_outcome(peer, self.request.number, self.outcome)
            self.sealed = (peer, parcel)


class ZmqServer(Server):
    """Serves methods over ipc for this host and TCP for all."""

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
        self._keys = keys
        self._encrypt = encrypt
        self._settings = settings or Settings()
        self._mailbox = Mailbox()
        self._methods = Methods(name, self._mailbox.put)
        self._methods.on_failure = self._fail
        self._peers = Peers(self._settings)
        self._pool = SlabPool(self._settings.slab_bytes)
        self._logbook = security.Logbook()
        self._epoch = secrets.randbits(63)
        self._reception = Reception(
            identity or hello.Identity(), keys, self._settings, self._logbook
        )
        self._sweeps: list[float] = []
        self._queued_bytes = 0
        self._failure: Exception | None = None
        self._closed = threading.Event()
        self._stop = False
        self._thread: threading.Thread | None = None
        self._counts = _counts()

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
        max_wait: float = MAX_WAIT,
        workers: int = 1,
        once: bool = False,
    ) -> None:
        batcher = Batcher(batch, max_wait)
        self._methods.bind(name, workfn, postfn, workers, once, batcher)

    def start(self, block: bool = True) -> None:
        assert self._thread is None, 'A server starts once.'
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
            self._mailbox.put(None)
            self._thread.join()
        self._closed.set()

    def empty(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        return self._pool.empty(shape, dtype)

    def stats(self) -> dict[str, float]:
        counts, self._counts = self._counts, _counts()
        duration = max(time.monotonic() - counts.pop('since'), 1e-9)
        return {
            **counts,
            'recvrate': counts['numrecv'] / duration,
            'sendrate': counts['numsend'] / duration,
            'clients': len(self._peers),
            'requests': self._methods.queued(),
            'queued_bytes': self._queued_bytes,
            **self._pool.stats(),
        }

    def pack_outcome(self, peer: Peer, number: int, outcome: Outcome) -> Parcel:
        """The reply for a peer; called by workers."""
        kind = Kind.REPLY if outcome.ok else Kind.ERROR
        pool = self._pool if peer.maps_slabs else None
        limit = self._settings.max_message
        return pack(kind, outcome.value, number, pool=pool, holder=peer, limit=limit)

    def _open(self) -> None:
        endpoint = self._address.resolved().tcp
        self._context = zmq.Context()
        self._router = self._context.socket(zmq.ROUTER)
        sockets.configure(self._router, self._settings)
        self._monitor = self._router.get_monitor_socket(EVENTS)
        self._gate = None
        try:
            # Options hold for endpoints bound later: local ones prove the token.
            if self._address.ipc:
                self._router.bind(self._address.ipc)
            if self._keys and self._encrypt:
                self._gate = security.Gate(
                    self._context, self._keys.allowed, self._logbook
                )
                security.encrypt_server(self._router, self._keys)
            self._router.bind(endpoint)
        except zmq.ZMQError as e:
            self._context.destroy(linger=0)
            raise AddressInUse(
                f'{self._name} cannot listen at {endpoint}: {e}. Another '
                f'server may run there; choose another port.'
            ) from e

    def _run(self) -> None:
        fileno = self._mailbox.fileno()
        socks = [
            self._router,
            self._monitor,
            *([self._gate.sock] if self._gate else []),
        ]
        self._polled: list = [(item, sockets.POLLIN) for item in (*socks, fileno)]
        try:
            while not self._stop:
                self._turn()
        except Exception as e:  # noqa: BLE001 - given to whoever waits
            log.error('%s stops serving.', self._name, exc_info=e)
            self._fail(e)
        finally:
            linger = int(1000 * self._settings.grace)
            self._router.disable_monitor()
            self._context.destroy(linger=linger)
            self._pool.close()
            self._reception.close()
            self._closed.set()

    def _fail(self, error: Exception) -> None:
        if self._failure is None:
            self._failure = error
        self._closed.set()

    def _turn(self) -> None:
        """Blocks until something happens or is due, and deals with it."""
        due = self._deadline()
        timeout = -1
        if due is not None:
            timeout = max(0, math.ceil(1000 * (due - time.monotonic())))
        for item, _ in zmq.zmq_poll(self._polled, timeout):
            if item is self._router:
                self._receive()
            elif item is self._monitor:
                self._watch()
            elif self._gate and item is self._gate.sock:
                self._gate.answer()
            else:
                for mail in self._mailbox.take():
                    self._handle(mail)
        if due is not None and due <= time.monotonic():
            self._run_due(time.monotonic())

    def _deadline(self) -> float | None:
        dues = (self._methods.deadline(), self._peers.deadline, *self._sweeps[:1])
        return min([due for due in dues if due is not None], default=None)

    def _run_due(self, now: float) -> None:
        self._methods.run_due()
        if self._peers.deadline is not None and self._peers.deadline <= now:
            self._peers.expire(now)
        if self._sweeps and self._sweeps[0] <= now:
            self._sweeps = [due for due in self._sweeps if due > now]
            self._sweep()

    def _handle(self, item: Any) -> None:
        if item is None:
            self._stop = True
        elif isinstance(item, Task):
            for job in item.jobs:
                assert isinstance(job, ZmqJob)
                self._finish(job, item.method.once)
            self._methods.finished(item)
        else:
            peer, number = item
            self._send(peer, Parcel(Kind.RELEASE, number))

    def _finish(self, job: ZmqJob, once: bool) -> None:
        session, number = job.session, job.request.number
        session.running.pop(number, None)
        self._queued_bytes -= job.nbytes
        assert job.outcome is not None
        self._counts['errors'] += not job.outcome.ok
        if once:
            session.store(number, job.outcome)
        if job.sealed and job.sealed[0] is session.peer:
            self._send(*job.sealed)
            return
        if job.sealed:
            self._pool.drop(job.sealed[0])  # The client left while we sealed.
        if session.peer:
            self._answer(session.peer, number, job.outcome)

    def _answer(self, peer: Peer, number: int, outcome: Outcome) -> None:
        try:
            parcel = self.pack_outcome(peer, number, outcome)
        except MessageError as e:
            parcel = self.pack_outcome(peer, number, failure(e))
        self._send(peer, parcel)

    def _receive(self) -> None:
        for _ in range(MESSAGES_PER_TURN):
            if not sockets.readable(self._router):
                return
            route, *frames = sockets.receive(self._router, head=2)
            self._counts['numrecv'] += 1
            try:
                self._dispatch(route, unpack(frames))
            except MessageError as e:
                self._counts['malformed'] += 1
                self._logbook.warn(f'malformed message from {route.hex()}', str(e))

    def _dispatch(self, route: bytes, parcel: Parcel) -> None:
        peer = self._peers.get(route)
        if peer is not None and peer.given_up:
            return
        if parcel.kind == Kind.HELLO:
            self._greet(route, parcel)
        elif peer is None:
            self._send_raw(route, Parcel(Kind.UNKNOWN))
        elif parcel.kind == Kind.REQUEST:
            self._request(peer, parcel)
        elif parcel.kind == Kind.RELEASE:
            self._pool.release(parcel.number, peer)
        elif parcel.kind == Kind.MAPPED:
            peer.maps_slabs = self._settings.slab_bytes > 0
        elif parcel.kind == Kind.BYE:
            self._drop(peer, for_good=True)
        else:
            raise MessageError(f'A client sent a message of kind {parcel.kind}.')

    def _greet(self, route: bytes, parcel: Parcel) -> None:
        answer, guest = self._reception.greet(route, unpack_value(parcel))
        if guest is not None:
            peer, replaced = self._peers.greet(route, guest.session, guest.name)
            if replaced is not None:
                self._pool.drop(replaced)
                self._peers.remove(replaced, time.monotonic())
            release = lambda number: self._mailbox.put((peer, number))
            peer.reader = guest.reader(release)
        if answer is not None:
            self._send_raw(route, answer)

    def _request(self, peer: Peer, parcel: Parcel) -> None:
        session, number = peer.session, parcel.number
        session.prune(parcel.mark)
        if number in session.running:
            return  # A repeat of what is being served; the answer finds its way.
        if number in session.stored:
            self._counts['repeats'] += 1
            self._answer(peer, number, session.stored[number])
            return
        method = self._methods.get(parcel.method.decode(errors='replace'))
        try:
            if method is None:
                raise MessageError(f'{self._name} has no method {parcel.method!r}.')
            if self._queued_bytes + parcel.nbytes > self._settings.max_queued:
                raise MessageError(f'{self._name} is overloaded, try again later.')
            job = ZmqJob(self, peer, parcel)
            done = self._methods.submit(method, job)
        except MessageError as e:
            self._answer(peer, number, failure(e))
            return
        session.running[number] = job
        self._queued_bytes += job.nbytes
        if done is not None:
            self._handle(done)

    def _send(self, peer: Peer, parcel: Parcel) -> None:
        if peer.given_up:
            return
        track = peer.count(parcel.nbytes)
        sent, tracker = self._send_raw(peer.route, parcel, track)
        if not sent:
            self._drop(peer)
        elif track and peer.track(tracker) > self._settings.max_unread:
            log.warning('%s does not read its replies, given up.', peer.session.name)
            self._counts['slow'] += 1
            peer.given_up = True

    def _send_raw(
        self, route: bytes, parcel: Parcel, track: bool = False
    ) -> tuple[bool, Any]:
        """Whether the route still exists, and the tracker that was asked for."""
        try:
            frames = [route, *parcel.frames(mark=self._epoch)]
            tracker = sockets.send(self._router, frames, track)
        except zmq.ZMQError as e:
            if e.errno != zmq.EHOSTUNREACH:
                raise
            return False, None
        self._counts['numsend'] += 1
        return True, tracker

    def _watch(self) -> None:
        while event := sockets.next_event(self._monitor):
            kind, endpoint = event
            if kind == zmq.EVENT_DISCONNECTED:
                now = time.monotonic()
                self._sweeps = [now + delay for delay in SWEEPS]
            else:
                self._logbook.warn(endpoint, 'a connection was refused, wrong key?')

    def _sweep(self) -> None:
        for peer in self._peers.all():
            if not self._send_raw(peer.route, Parcel(Kind.PROBE))[0]:
                self._drop(peer)

    def _drop(self, peer: Peer, for_good: bool = False) -> None:
        self._peers.remove(peer, time.monotonic(), for_good)
        self._pool.drop(peer)
        if peer.session.peer is None:
            self._methods.forget(peer.session.key)


def _counts() -> dict[str, float]:
    names = ('numrecv', 'numsend', 'errors', 'malformed', 'repeats', 'slow')
    return {**dict.fromkeys(names, 0), 'since': time.monotonic()}
