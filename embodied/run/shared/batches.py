"""Batches: the stream of an agent, whose fetched but unused batches are saved."""

import collections
import threading
from collections.abc import Iterable, Iterator
from typing import Any

from ...core import base
from ...streams.stateless import load_stream, save_stream

__all__ = ['Batches']


class Batches(base.Stream):
    """Iterates over `agent.stream(stream)`.

    An agent may fetch batches ahead of their use. They cannot be drawn again, since
    the replay goes on, so those that were fetched but not used are saved with the
    stream's position and come first after a load.
    """

    def __init__(self, agent: base.Agent, stream: Iterable[base.Batch]):
        self._agent = agent
        self._source = _Source(stream)
        self._output: Iterator[Any] | None = None

    def __next__(self) -> Any:
        if self._output is None:
            # Not earlier: the agent may fetch at once, and the replay starts empty.
            self._output = iter(self._agent.stream(self._source))
        batch = next(self._output)
        self._source.used()
        return batch

    def save(self) -> Any:
        return self._source.save()

    def load(self, data: Any) -> None:
        assert self._output is None, 'load before the first batch'
        self._source.load(data)


class _Source(base.Stream):
    """Remembers what was fetched from the stream until it is used."""

    def __init__(self, stream: Iterable[base.Batch]):
        self._stream = iter(stream)
        self._unused: collections.deque[base.Batch] = collections.deque()
        self._again: collections.deque[base.Batch] = collections.deque()
        # Agents may fetch from a thread of their own, also during a save.
        self._lock = threading.Lock()

    def __next__(self) -> base.Batch:
        with self._lock:
            batch = self._again.popleft() if self._again else next(self._stream)
            self._unused.append(batch)
            return batch

    def used(self) -> None:
        """The oldest batch that was fetched is in use now."""
        self._unused.popleft()

    def save(self) -> dict[str, Any]:
        with self._lock:
            unused = [*self._unused, *self._again]
            return {'unused': unused, 'stream': save_stream(self._stream)}

    def load(self, data: dict[str, Any]) -> None:
        load_stream(self._stream, data['stream'])
        self._again = collections.deque(data['unused'])
