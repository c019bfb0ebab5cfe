"""Future: the answer to a call that may still be on its way."""

from collections.abc import Callable
from typing import Any, Protocol

from .errors import Timeout

__all__ = ['Future', 'Waiter']


class Waiter(Protocol):
    """What futures need of their client."""

    def wait(self, future: 'Future', timeout: float | None) -> None:
        """Blocks until the future is done, or for `timeout` seconds."""

    def watch(self, future: 'Future', fn: 'Callable[[Future], None]') -> bool:
        """Adds a callback, which runs without a `wait`; False if the future is done."""

    def dropped(self, error: Exception) -> None:
        """Takes the error of a future whose result was never read."""


class Future:
    """Result or error of one call, completed once by the client that made it.

    The lock of the client guards completing and adding callbacks.
    """

    callbacks: 'tuple[Callable[[Future], None], ...]' = ()
    _done = False
    _value: Any = None
    _error: Exception | None = None
    _read = False

    def __init__(self, waiter: Waiter) -> None:
        self._waiter = waiter

    def is_complete(self) -> bool:
        """Whether `complete` was called; unlike `done`, it does not read messages."""
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
                    f'No answer within {timeout} s. The call is not canceled; '
                    f'call result() again to go on waiting.'
                )
        self._read = True
        if self._error is not None:
            raise self._error
        return self._value

    def add_done_callback(self, fn: 'Callable[[Future], None]') -> None:
        """Calls `fn(future)` once done, from the thread that finds the answer."""
        if not self._waiter.watch(self, fn):
            fn(self)

    def complete(self, value: Any, error: Exception | None = None) -> None:
        """Ends the call, for clients only; its callbacks are due then."""
        self._value = value
        self._error = error
        self._done = True

    def __del__(self) -> None:
        if self._error is not None and not self._read:
            self._waiter.dropped(self._error)
