"""Sessions: the clients of a server, each through all of its connections."""

import collections
import math

from .dispatch.jobs import Job, Outcome
from .errors import MessageError
from .interface import Settings
from .wires.connection import ServerConnection

__all__ = ['Session', 'Sessions']

MAX_SESSIONS = 10_000
MAX_STORED = 1024  # replies per session, for clients that never say what they have read


class Session:
    """A client object, through all of its connections."""

    def __init__(self, key: bytes, name: str) -> None:
        self.key = key
        self.label = key.hex()
        self.name = name
        self.connection: ServerConnection | None = None
        self.expires: float | None = None
        self.running: dict[int, Job] = {}
        self.stored: collections.OrderedDict[int, Outcome] = collections.OrderedDict()

    def store(self, number: int, outcome: Outcome) -> None:
        self.stored[number] = outcome
        if len(self.stored) > MAX_STORED:
            self.stored.popitem(last=False)

    def prune(self, mark: int) -> None:
        """Forgets replies to requests before `mark`, which the client has read."""
        if self.stored:
            for number in [number for number in self.stored if number < mark]:
                del self.stored[number]


class Sessions:
    """All sessions of a server, under the lock of the server."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._sessions: dict[bytes, Session] = {}
        self.due = math.inf  # when the next session expires

    def attach(
        self, connection: ServerConnection, key: bytes, name: str
    ) -> ServerConnection | None:
        """Opens or resumes a session; returns the connection that it had."""
        if connection.session is not None and connection.session.key != key:
            raise MessageError('A connection changed its session.')
        session = self._sessions.get(key) or self._open(key, name)
        earlier, session.connection = session.connection, connection
        session.expires = None
        connection.session = session
        return earlier

    def detach(
        self, connection: ServerConnection, now: float, for_good: bool = False
    ) -> Session | None:
        """Ends a connection; returns its session if that has no other one.

        The session waits some time for the client to come back.
        """
        session, connection.session = connection.session, None
        if session is None or session.connection is not connection:
            return None
        session.connection = None
        session.expires = now if for_good else now + self._settings.session
        self._expire(now)
        return session

    def run_due(self, now: float) -> None:
        """Forgets the sessions that have expired, when `due`."""
        if self.due <= now:
            self._expire(now)

    def _open(self, key: bytes, name: str) -> Session:
        if len(self._sessions) >= MAX_SESSIONS:
            absent = [s for s in self._sessions.values() if s.expires is not None]
            if not absent:
                raise MessageError('Too many clients.')
            del self._sessions[absent[0].key]
        session = self._sessions[key] = Session(key, name)
        return session

    def _expire(self, now: float) -> None:
        for session in list(self._sessions.values()):
            if session.expires is not None and session.expires <= now:
                del self._sessions[session.key]
        ends = [s.expires for s in self._sessions.values() if s.expires is not None]
        self.due = min(ends, default=math.inf)
