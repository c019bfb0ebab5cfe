"""Keeper: the thread of a client, which does what no call can do by itself.

It connects, ends calls at their deadline, gives memory back, and reads the answers to
calls that have callbacks instead of a thread that waits.
"""

import logging
import math
import select
import threading
import time
from collections.abc import Callable
from typing import Protocol

from embodied.core.errors import ConfigError

from .errors import Disconnected, Refused
from .reader import SharedReader
from .wires.connection import ClientConnection
from .wires.dialer import Dialer
from .wires.wake_queue import WakeQueue

__all__ = ['ConnectionKeeper']

log = logging.getLogger(__name__)


class Kept(Protocol):
    """What the keeper needs of its client, with the client's lock unless noted."""

    @property
    def connected(self) -> bool:
        """Whether the handshake is done."""

    @property
    def failed(self) -> bool:
        """Whether no connection is of use any more."""

    def begin(self, connection: ClientConnection) -> None:
        """Begins to use a connection."""

    def pause(self) -> None:
        """Stops using the connection, which is lost."""

    def next_deadline(self) -> float:
        """When `expire` has something to do, as time.monotonic(); inf for never."""

    def expire(self, now: float) -> None:
        """Ends calls whose deadline has passed."""

    def fail(self, error: Exception) -> None:
        """Ends all calls, now and later."""

    def run_callbacks(self) -> None:
        """Runs callbacks of completed calls; called without the lock."""


class ConnectionKeeper:
    """Opens the connections of a reader and looks after them until `stop`."""

    def __init__(
        self,
        name: str,
        client: Kept,
        reader: SharedReader,
        dialer: Dialer,
        queue: WakeQueue,
    ) -> None:
        self.due = math.inf  # the first deadline, as far as the thread knows
        self._name = name
        self._client = client
        self._reader = reader
        self._dialer = dialer
        self._queue = queue
        self._begun = False  # whether the client uses the connection
        self._stopped = False
        self._thread = threading.Thread(
            target=self._run, name=f'{name}-keeper', daemon=True
        )

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Makes the thread look at everything again."""
        self._queue.put(None)

    def call(self, fn: Callable[[], None]) -> None:
        """Runs a function in the thread, with the lock. Takes no lock itself, so it
        can be used in finalizers."""
        self._queue.put(fn)

    def stop(self) -> None:
        """Ends the thread, after what was passed to `call`, and the connection."""
        self._queue.put(self._stop)
        self._thread.join()

    def lose(self) -> None:
        """Closes a lost connection and plans the next one; needs the lock."""
        self._reader.detach()
        self._begun = False
        self._dialer.delay()
        self._client.pause()
        self.wake()

    def _run(self) -> None:
        try:
            while not self._stopped:
                self._turn()
        except Exception as e:
            log.error('%s stops.', self._name, exc_info=e)
            with self._reader.lock:
                self._client.fail(Disconnected(f'{self._name} failed: {e}'))
            self._client.run_callbacks()
            raise
        finally:
            with self._reader.lock:
                self._reader.detach()
                self._dialer.close()

    def _turn(self) -> None:
        reader, client = self._reader, self._client
        with reader.lock:
            connection = reader.connection
            wanted = reader.watched or not client.connected
            timeout = self._timeout()
        if connection is None:
            self._wait(timeout)
        else:
            connection.watch(self._queue, wanted and not reader.reading, timeout)
        functions = self._queue.take()
        with reader.lock:
            self._maintain()
            for fn in functions:
                if fn is not None:
                    fn()
            reader.pump()
            client.expire(time.monotonic())
        client.run_callbacks()

    def _timeout(self) -> float | None:
        self.due = self._client.next_deadline()
        idle = self._reader.connection is None and not self._client.failed
        due = min(self.due, self._dialer.due) if idle else self.due
        return None if due == math.inf else max(0.0, due - time.monotonic())

    def _wait(self, timeout: float | None) -> None:
        poller = select.poll()
        poller.register(self._queue.fileno(), select.POLLIN)
        poller.poll(None if timeout is None else 1000 * timeout)

    def _maintain(self) -> None:
        connection = self._reader.connection or self._open()
        if connection is None:
            return
        connection.maintain()
        if connection.lost:
            # Replies that came before the end count. Then the reader calls `lose`.
            self._reader.pump()
        elif connection.established and not self._begun:
            self._begun = True
            self._dialer.succeed()
            self._client.begin(connection)

    def _open(self) -> ClientConnection | None:
        if self._client.failed:
            return None
        try:
            connection = self._dialer.open()
        except (Refused, ConfigError) as e:
            self._client.fail(e)
            return None
        if connection is not None:
            self._reader.attach(connection)
        return connection

    def _stop(self) -> None:
        self._stopped = True
