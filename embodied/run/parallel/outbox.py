"""Outbox: sends messages to a server from a thread of its own."""

import collections
import threading
from typing import Any

from ... import transport

__all__ = ['LOG_QUEUE', 'Outbox']

LOG_QUEUE = 64  # messages that wait for a logger that does not answer


class Outbox:
    """Calls one method of a server with every message that is `put`, in order.

    Up to `limit` messages wait, one more is on its way. When a slow server leaves more,
    `put` waits up to `patience` seconds for room. Then the oldest is dropped and
    counted, and `put` does not wait again before the server has answered. With `wait`,
    none is dropped and `put` returns when the server has answered.

    What goes wrong with a message (the server refuses it, or it cannot be sent at all)
    is raised by the next `put`.
    """

    def __init__(
        self,
        client: transport.ClientInterface,
        method: str,
        limit: int,
        wait: bool = False,
        patience: float = 0.0,
    ):
        assert limit >= 1, limit
        self._client = client
        self._method = method
        self._limit = limit
        self._wait = wait
        self._patience = patience
        self._late = False  # the server has not answered since the patience ended
        self._change = threading.Condition()
        self._messages: collections.deque[tuple] = collections.deque()
        self._sending = False
        self._closed = False
        self._error: Exception | None = None
        self._dropped = 0
        self._thread = threading.Thread(
            target=self._work, name=f'outbox-{method}', daemon=True
        )
        self._thread.start()

    @property
    def dropped(self) -> int:
        """Messages that were never sent."""
        return self._dropped

    def put(self, *message: Any) -> bool:
        """Whether no message was dropped for this one.

        Arrays in a message must not be changed afterwards.
        """
        if self._wait:
            self._client.call(self._method, *message).result()
            return True
        with self._change:
            self._raise()
            fits = self._make_room()
            self._messages.append(message)
            self._change.notify_all()
            return fits

    def stop_waiting(self) -> None:
        """Ends the waiting for room, now and for all later messages."""
        with self._change:
            self._patience = 0.0
            self._late = True
            self._change.notify_all()

    def flush(self, timeout: float | None = None) -> bool:
        """Blocks until everything was answered; False after `timeout` seconds."""
        with self._change:
            done = self._change.wait_for(self._idle, timeout)
            self._raise()
            return done

    def close(self) -> None:
        """Drops what still waits, and closes the client."""
        with self._change:
            self._closed = True
            self._change.notify_all()
        self._client.close()
        self._thread.join()

    def _make_room(self) -> bool:
        full = lambda: len(self._messages) == self._limit
        if full() and self._patience:
            goes_on = lambda: self._late or self._closed or not full()
            self._change.wait_for(goes_on, self._patience)
            self._raise()
        if not full():
            return True
        self._late = True
        self._messages.popleft()
        self._dropped += 1
        return False

    def _idle(self) -> bool:
        return self._closed or not (self._messages or self._sending)

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error

    def _work(self) -> None:
        while (message := self._next()) is not None:
            try:
                self._client.call(self._method, *message).result()
            except Exception as error:  # noqa: BLE001 - raised by the next put
                with self._change:
                    self._error = None if self._closed else error
                    self._closed = True
                    self._change.notify_all()

    def _next(self) -> tuple | None:
        with self._change:
            self._sending = self._late = False
            self._change.notify_all()
            self._change.wait_for(lambda: self._messages or self._closed)
            if self._closed:
                return None
            self._sending = True
            return self._messages.popleft()
