"""Dialer: opens the connections of a client, one attempt after the other.

Before each attempt it asks for the address, since the server may have moved. A resolver
may block or fail, so it runs in a thread of its own, and calls, deadlines and an open
connection do not depend on it.
"""

import logging
import math
import queue
import threading
import time
from collections.abc import Callable

import zmq

from .. import addresses, security
from ..addresses import Address
from ..errors import Refused
from ..interface import Resolver, Settings
from ..keys import ClientKeys
from . import unix_socket
from .connection import ClientConnection
from .stream import SCRATCH
from .unix_client import UnixClientConnection
from .zmq_client import ZmqClientConnection

__all__ = ['Dialer']

log = logging.getLogger(__name__)

FIRST_PAUSE, LAST_PAUSE = 0.02, 0.5  # seconds between attempts to connect


class Lookup:
    """Calls a resolver in a thread of its own, once per `ask`.

    notify: called in that thread when there is an answer.
    """

    def __init__(self, resolver: Resolver, notify: Callable[[], None]) -> None:
        self.answer: Address | Exception | None = None
        self._resolver = resolver
        self._notify = notify
        self._requests: queue.SimpleQueue[bool] = queue.SimpleQueue()
        threading.Thread(target=self._run, name='resolver', daemon=True).start()

    def ask(self) -> None:
        self.answer = None
        self._requests.put(True)

    def close(self) -> None:
        """Ends the thread, after the call that may be under way."""
        self._requests.put(False)

    def _run(self) -> None:
        while self._requests.get():
            try:
                self.answer = addresses.parse(self._resolver())
            except Exception as e:  # noqa: BLE001 - reported by the dialer
                self.answer = e
            self._notify()


class Dialer:
    """Makes an attempt to connect whenever `open` is called and one is due.

    addr: an address, or a resolver. notify: makes the caller call `open` again; it is
    called from another thread. All methods belong to one thread.
    """

    def __init__(
        self,
        addr: str | int | Resolver,
        keys: ClientKeys | None,
        encrypt: bool,
        settings: Settings,
        notify: Callable[[], None],
    ) -> None:
        self.due = 0.0  # when `open` has something to do, as time.monotonic()
        self._keys = keys
        self._encrypt = encrypt
        self._settings = settings
        self._address: Address | None = None
        self._lookup: Lookup | None = None
        if callable(addr):
            self._lookup = Lookup(addr, notify)
        else:
            self._address = self._check(addresses.parse(addr))
        self._asked = False  # the resolver, for the attempt that comes next
        self._warned = ''
        self._pause = FIRST_PAUSE
        self._attempts = 0
        self._scratch = memoryview(bytearray(SCRATCH))
        self._context: zmq.Context | None = None

    @property
    def endpoint(self) -> str:
        """The address of the last attempt, for messages."""
        return self._address.text if self._address else 'an unknown address'

    def open(self) -> ClientConnection | None:
        """A connection, if an attempt is due and does not fail at once.

        Raises ConfigError if the address needs keys, and Refused if another user
        listens there.
        """
        if not self._is_due():
            return None
        connection = self._connect()
        if connection is None:
            self.delay()
        else:
            self.due = math.inf
        return connection

    def succeed(self) -> None:
        """The connection is established: pauses begin with the shortest again."""
        self._pause = FIRST_PAUSE

    def delay(self) -> None:
        """The attempt has failed, or the connection is lost: plans the next one."""
        self.due = time.monotonic() + self._pause
        self._pause = min(2 * self._pause, LAST_PAUSE)
        if self._lookup is not None and self._lookup.answer is not None:
            self._asked = False  # The answer was for an earlier attempt.

    def close(self) -> None:
        """Releases what connections share; they have to be closed before."""
        if self._lookup is not None:
            self._lookup.close()
        if self._context is not None:
            self._context.term()

    def _is_due(self) -> bool:
        """Whether to connect now, to an address that is up to date."""
        now = time.monotonic()
        if self._lookup is None:
            return self.due <= now
        if not self._asked:
            if self.due <= now:
                self._asked = True
                self._lookup.ask()
                self.due = now + self._settings.patience
            return False
        answer = self._lookup.answer
        if answer is None:
            if self.due > now:
                return False
            # The server may still be where it was.
            self._warn(f'no answer within {self._settings.patience} s')
            self.due = math.inf
            return self._address is not None
        self._asked = False
        if isinstance(answer, Exception):
            self._warn(f'{type(answer).__name__}: {answer}')
            self.delay()
            return False
        self._address = self._check(answer)
        return True

    def _connect(self) -> ClientConnection | None:
        assert self._address is not None
        if self._address.local:
            return self._connect_unix(self._address)
        if self._context is None:
            self._context = zmq.Context()
        self._attempts += 1
        return ZmqClientConnection(
            self._context,
            self._address.tcp,
            self._keys if self._encrypt else None,
            self._settings,
            f'inproc://events-{self._attempts}',
        )

    def _connect_unix(self, address: Address) -> ClientConnection | None:
        sock = unix_socket.connect(address)
        if sock is None:
            return None
        _, uid = unix_socket.credentials(sock)
        # Another user could have taken the address, unless it is proven by keys.
        if self._keys is None and not unix_socket.trusted(uid):
            sock.close()
            raise Refused(
                f'The server at {address.text} belongs to user {uid}. Choose another '
                f'port, or give both sides the keys of the run.'
            )
        return UnixClientConnection(sock, self._settings, self._scratch)

    def _check(self, address: Address) -> Address:
        if address != self._address:
            security.require_keys(address, self._keys, self._encrypt)
        return address

    def _warn(self, reason: str) -> None:
        if reason != self._warned:
            self._warned = reason
            log.warning('The address of a server cannot be found: %s', reason)
