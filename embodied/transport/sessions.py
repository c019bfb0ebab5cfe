"""Sessions: the connections of a server and the sessions that outlive them."""

import collections
import math

from .codec.shared_memory import SlabReader
from .dispatch.jobs import Job, Outcome
from .errors import MessageError
from .interface import Settings
from .wires.wire import ServerConnection

__all__ = ['Peer', 'Peers', 'Session']

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
    """One greeted connection."""

    def __init__(self, link: ServerConnection, session: Session) -> None:
        self.link = link
        self.session = session
        self.reader: SlabReader | None = None
        self.maps_slabs = False


class Peers:
    """All connections and sessions of a server, under the lock of the server."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._peers: set[Peer] = set()
        self._sessions: dict[bytes, Session] = {}
        self.due = math.inf  # when the next session ends

    def __len__(self) -> int:
        return len(self._peers)

    def all(self) -> list[Peer]:
        return list(self._peers)

    def greet(
        self, link: ServerConnection, key: bytes, name: str
    ) -> tuple[Peer, Peer | None]:
        """The peer of a connection, and the one that it replaces."""
        if link.peer is not None and link.peer.session.key != key:
            raise MessageError('A connection changed its session.')
        session = self._sessions.get(key) or self._open_session(key, name)
        replaced = session.peer
        peer = link.peer = Peer(link, session)
        session.peer, session.expires = peer, None
        self._peers.add(peer)
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
        self._peers.discard(peer)
        session = peer.session
        if session.peer is peer:
            session.peer = None
            session.expires = now if for_good else now + self._settings.session
            self._expire(now)

    def run_due(self, now: float) -> None:
        """Forgets sessions that nobody came back to, when `due`."""
        if self.due <= now:
            self._expire(now)

    def _expire(self, now: float) -> None:
        for session in list(self._sessions.values()):
            if session.expires is not None and session.expires <= now:
                del self._sessions[session.key]
        ends = [s.expires for s in self._sessions.values() if s.expires is not None]
        self.due = min(ends, default=math.inf)
