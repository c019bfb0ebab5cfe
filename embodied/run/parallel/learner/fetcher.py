"""Fetcher: batches of a remote stream, requested before they are needed."""

import collections
import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from .... import transport
from ....core import base

__all__ = ['Fetcher']


class Fetcher(base.Stream):
    """Calls `method` of the replay role `amount` batches ahead of their use.

    Every request announces the number of its first sequence in the order of training:
    those trained before this start plus those requested since. So the limiter needs no
    memory of requests, and a batch that was lost with a learner is served again. An
    empty batch is the end.
    """

    def __init__(
        self,
        client: transport.ClientInterface,
        method: str,
        amount: int,
        batch_size: int,
    ):
        assert amount >= 1, amount
        self._client = client
        self._method = method
        self._amount = amount
        self._batch_size = batch_size
        self._number = 0
        self._requests: collections.deque[transport.Future] = collections.deque()
        self._first: transport.Future | None = None
        self._ended = False
        self._closing = threading.Lock()

    def start(self, number: int = 0) -> None:
        """Sends the first requests; `number` sequences were trained on before."""
        assert not self._requests, 'starts once'
        self._number = number
        self._request()
        self._first = self._requests[0] if self._requests else None

    @property
    def ready(self) -> bool:
        """Whether replay was filled: from then on it can always serve."""
        return not self._ended and self._first is not None and self._first.done()

    @property
    def ended(self) -> bool:
        """Whether no batch will follow."""
        return self._ended

    def __next__(self) -> base.Batch:
        batch = {} if self._ended else self._receive()
        if not batch:
            self._ended = True
            raise StopIteration
        self._request()
        return batch

    def close(self) -> None:
        """Ends the stream, also for a thread that is waiting for a batch."""
        self._ended = True
        with self._closing:  # by the learner, and by the thread that interrupts it
            self._client.close()

    @contextlib.contextmanager
    def until_end(self) -> Iterator[None]:
        """Suppresses what the end of this stream raises in those that read it.

        That may be a RuntimeError: a generator that calls next() itself, such as an
        agent's, turns a StopIteration of its source into one.
        """
        try:
            yield
        except (StopIteration, RuntimeError):
            if not self._ended:
                raise

    def _receive(self) -> base.Batch:
        with self._unless_closed():
            return self._requests.popleft().result()
        return {}

    def _request(self) -> None:
        with self._unless_closed():
            while len(self._requests) < self._amount:
                future = self._client.call(self._method, self._number)
                self._requests.append(future)
                self._number += self._batch_size

    @contextlib.contextmanager
    def _unless_closed(self) -> Iterator[None]:
        """Another thread may close the stream at any moment, which is its end."""
        try:
            yield
        except transport.Disconnected:
            if not self._ended:
                raise

    def save(self) -> Any:
        return None

    def load(self, data: Any) -> None:
        pass
