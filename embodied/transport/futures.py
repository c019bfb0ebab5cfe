"""Future: the answer to a call that may still be on its way."""

import threading
from collections.abc import Callable
from typing import Any, Protocol

from .errors import Timeout

__all__ = ['Future']


class Waiter(Protocol):
    """What a client does for its futures."""

    def wait(self, future: 'Future', timeout: float | None) -> None:
        """Returns when the future is done or the time is over."""

    def watch(self) -> None:
        """From now on futures complete even when nobody waits for them."""

    def dropped(self, error: Exception) -> None:
        """Takes the error of a future that nobody ever asked for its result."""


class Future:
    """Result or error of one call, completed once by the client that made it."""

    def __init__(self, waiter: Waiter) -> None:
        self._waiter = waiter
        self._lock = threading.Lock()
        self._done = False
        self._value: Any = None
        self._error: Exception | None = None
        self._asked = False
        self._callbacks: list[Callable[[Future], None]] = []

    def is_complete(self) -> bool:
        """Whether the answer was already read; unlike `done` it does not look."""
        return self._done

    def done(self) -> bool:
        """Whether `result` would return or raise at once."""
        if not self._done:
            self._waiter.wait(self, 0)
        return self._done

    def result(self, timeout: float | None = None) -> Any:
        """Blocks for the answer; raises what went wrong, or Timeout."""
        if not self._done:
            self._waiter.wait(self, timeout)
            if not self._done:
                raise Timeout(
                    f'No answer within {timeout} s. The call is still on its way; '
                    f'call result() again to go on waiting.'
                )
        self._asked = True
        if self._error is not None:
            raise self._error
        return self._value

    def add_done_callback(self, fn: 'Callable[[Future], None]') -> None:
        """Calls `fn(future)` once done, from the thread that finds the answer."""
        with self._lock:
            if not self._done:
                self._callbacks.append(fn)
        if self._done:
            fn(self)
        else:
            self._waiter.watch()

    def complete(
        self, value: Any = None, error: Exception | None = None
    ) -> 'list[Callable[[Future], None]]':
        """Ends the call, for clients only; returns the callbacks that are now due."""
        with self._lock:
            if self._done:
                return []
            self._value = value
            self._error = error
            self._done = True
            callbacks, self._callbacks = self._callbacks, []
        return callbacks

    def __del__(self) -> None:
        if self._error is not None and not self._asked:
            self._waiter.dropped(self._error)
