"""Stream that reads its source ahead of the consumer, in a thread."""

import collections
import threading
from collections.abc import Callable, Iterable
from typing import Any

from embodied.core import base
from embodied.core.errors import ConfigError

from .stateless import load_stream, save_stream

__all__ = ['Prefetch']


class Prefetch(base.Stream):
    """Keeps up to `amount` transformed items ready; starts with the first `next`.

    `save` describes the consumer's position: what was read ahead travels along
    (before the transform), since a source without a position of its own, such as
    `Stateless` over replay, could not give it again. It never waits for the source.
    An error of the source or the transform, the end of the source included, reaches
    the consumer after the items before it.
    """

    def __init__(
        self,
        source: Iterable,
        transform: Callable[[Any], Any] | None = None,
        amount: int = 1,
    ):
        if amount < 1:
            raise ConfigError(f'Prefetch needs amount >= 1 but got {amount}.')
        self._source = iter(source)
        self._transform = transform or (lambda item: item)
        self._amount = amount
        self._change = threading.Condition()
        self._ready: collections.deque[tuple[Any, Any]] = collections.deque()
        self._position = save_stream(self._source)
        self._again: collections.deque[Any] = collections.deque()
        self._error: BaseException | None = None
        self._stopping = False
        self._thread: threading.Thread | None = None

    def __next__(self) -> Any:
        if self._thread is None:
            self._start()
        with self._change:
            self._change.wait_for(lambda: self._ready or self._error)
            if not self._ready:
                assert self._error is not None
                raise self._error
            _, item = self._ready.popleft()
            self._change.notify_all()
            return item

    def save(self) -> Any:
        with self._change:
            ahead = [raw for raw, _ in self._ready] + list(self._again)
            return {'source': self._position, 'ahead': ahead}

    def load(self, data: Any) -> None:
        self.close()
        load_stream(self._source, data['source'])
        self._position = data['source']
        self._again = collections.deque(data['ahead'])

    def close(self) -> None:
        """Ends the thread after the item it is waiting for; drops what is ready."""
        with self._change:
            self._stopping = True
            self._change.notify_all()
        if self._thread is not None:
            self._thread.join()
        self._thread = None
        self._ready.clear()
        self._again.clear()

    def _start(self) -> None:
        self._stopping = False
        self._error = None
        # A daemon: a source that never answers must not keep the process alive.
        self._thread = threading.Thread(target=self._work, name='prefetch', daemon=True)
        self._thread.start()

    def _work(self) -> None:
        try:
            while self._wait_for_room():
                if self._again:
                    raw, position = self._again[0], self._position
                else:
                    raw = next(self._source)
                    position = save_stream(self._source)
                item = self._transform(raw)
                with self._change:
                    if self._again:
                        self._again.popleft()
                    self._position = position
                    self._ready.append((raw, item))
                    self._change.notify_all()
        except BaseException as error:  # noqa: BLE001 (raised by the consumer's next)
            with self._change:
                self._error = error
                self._change.notify_all()

    def _wait_for_room(self) -> bool:
        with self._change:
            self._change.wait_for(
                lambda: self._stopping or len(self._ready) < self._amount
            )
            return not self._stopping
