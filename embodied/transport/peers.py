"""Peers: the connections of a server and the sessions that outlive them."""

import collections
from typing import Any

import zmq

from .errors import MessageError
from .interface import Settings
from .jobs import Job, Outcome
from .slabs import SlabReader

__all__ = ['Peer', 'Peers', 'Session']

OVERHEAD = 256  # bytes of a message besides its content
TRACK_EVERY = 2**20  # bytes to one peer; trackers are slow
MAX_SESSIONS = 10_000
MAX_STORED = 1024  # replies per session, for clients that never say what they read


class Session:
    """A client object, through all of its connections."""

    def __init__(self, key: bytes, name: str) -> None:
        self.key = key
        self.label = key.hex()
        self.name = name
        self.peer: Peer | None = None
        self.expires: float | None = None
        self.running: dict[int, Job] = {}
        self.stored: collections.OrderedDict[int, Outcome] = collections.OrderedDict()

    def store(self, number: int, outcome: Outcome) -> None:
        self.stored[number] = outcome
        if len(self.stored) > MAX_STORED:
            self.stored.popitem(last=False)

    def prune(self, mark: int) -> None:
        """Forgets replies before `mark`, which the client has read."""
        if self.stored:
            for number in [number for number in self.stored if number < mark]:
                del self.stored[number]


class Peer:
    """One greeted connection. Its route is ours, so nobody can claim another's."""

    def __init__(self, route: bytes, session: Session) -> None:
        self.route = route
        self.session = session
        self.reader: SlabReader | None = None
        self.maps_slabs = False
        self.given_up = False  # does not read, so it is not listened to either
        self._untracked = 0
        self._unsent: collections.deque[tuple[int, Any]] = collections.deque()

    def count(self, nbytes: int) -> bool:
        """Counts bytes to be sent; whether their message should be tracked."""
        self._untracked += nbytes + OVERHEAD
        return self._untracked >= TRACK_EVERY

    def track(self, tracker: zmq.MessageTracker) -> int:
        """Remembers a tracker; returns the bytes that did not leave yet."""
        self._unsent.append((self._untracked, tracker))
        self._untracked = 0
        while self._unsent and self._unsent[0][1].done:
            self._unsent.popleft()
        return sum(nbytes for nbytes, _ in self._unsent)


class Peers:
    """All connections and sessions of a server. Only its I/O thread changes them."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._routes: dict[bytes, Peer] = {}
        self._sessions: dict[bytes, Session] = {}
        self.deadline: float | None = None  # when `expire` may have something to do

    def __len__(self) -> int:
        return len(self._routes)

    def get(self, route: bytes) -> Peer | None:
        return self._routes.get(route)

    def all(self) -> list[Peer]:
        return list(self._routes.values())

    def greet(self, route: bytes, key: bytes, name: str) -> tuple[Peer, Peer | None]:
        """The peer of a new connection, and the one that it replaces."""
        present = self._routes.get(route)
        if present is not None and present.session.key != key:
            raise MessageError('A connection changed its session.')
        session = self._sessions.get(key) or self._open_session(key, name)
        replaced = session.peer
        peer = Peer(route, session)
        session.peer, session.expires = peer, None
        self._routes[route] = peer
        if replaced is not None and replaced.route == route:
            replaced = None
        return peer, replaced

    def _open_session(self, key: bytes, name: str) -> Session:
        if len(self._sessions) >= MAX_SESSIONS:
            absent = [s for s in self._sessions.values() if s.expires is not None]
            if not absent:
                raise MessageError('Too many clients.')
            del self._sessions[absent[0].key]
        session = self._sessions[key] = Session(key, name)
        return session

    def remove(self, peer: Peer, now: float, for_good: bool = False) -> None:
        """Forgets a connection; its session waits a while for the next one."""
        if self._routes.get(peer.route) is peer:
            del self._routes[peer.route]
        session = peer.session
        if session.peer is peer:
            session.peer = None
            session.expires = now if for_good else now + self._settings.session
            self.expire(now)

    def expire(self, now: float) -> None:
        for session in list(self._sessions.values()):
            if session.expires is not None and session.expires <= now:
                del self._sessions[session.key]
        ends = [s.expires for s in self._sessions.values() if s.expires is not None]
        self.deadline = min(ends, default=None)
