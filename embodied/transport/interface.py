"""The interface that every backend offers: servers, clients and their settings."""

import abc
import contextvars
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, Self, TypeAlias

import numpy as np

from .futures import Future

__all__ = [
    'Client',
    'Request',
    'Resolver',
    'Server',
    'Settings',
    'current_requests',
]

# Returns the address of a server. It may block, and raise if there is none now: then it
# is called again a little later.
Resolver: TypeAlias = Callable[[], str]

MAX_WAIT = 0.002  # seconds until a partial batch is dispatched

_served: contextvars.ContextVar[Sequence['Served']] = contextvars.ContextVar(
    'served', default=()
)


@dataclasses.dataclass(frozen=True)
class Settings:
    """Limits in bytes and seconds; the defaults fit a run on one machine."""

    max_message: int = 2**30  # of one array that does not pass through a slab
    max_queued: int = 2**31  # requests in a server, more are answered with an error
    max_unread: int = 2**29  # replies that one client has not read
    slab_bytes: int = 2**31  # shared memory per sender; 0 sends everything inline
    heartbeat: float = 2.0  # between heartbeats of an idle connection
    patience: float = 10.0  # without a heartbeat until a connection counts as lost
    session: float = 60.0  # a vanished client may come back to its stored replies
    grace: float = 2.0  # for running handlers and unsent replies when closing


class Request(NamedTuple):
    """Which call a handler is serving."""

    client: str  # new for every client object
    name: str  # as the client calls itself
    number: int  # counts the calls of this client
    repeat: bool  # sent before, possibly to a server that died: maybe served already
    rows: int  # in a batched method; 0 for one row without a batch dimension


def current_requests() -> tuple[Request, ...]:
    """The requests that the calling handler serves: one, or those of its batch."""
    return tuple([served.request for served in _served.get()])


class Served(Protocol):
    """What a handler is called for."""

    @property
    def request(self) -> Request: ...


def run_with_requests(served: Sequence[Served], fn: Callable, *args: Any) -> Any:
    """Calls a handler so that `current_requests` works in it."""
    token = _served.set(served)
    try:
        return fn(*args)
    finally:
        _served.reset(token)


class Server(abc.ABC):
    """Answers calls to its methods until closed."""

    @abc.abstractmethod
    def bind(
        self,
        name: str,
        workfn: Callable,
        postfn: Callable | None = None,
        workers: int = 1,
        once: bool = False,
    ) -> None:
        """Serves `client.call(name, *args)` by `workfn(*args)`; before `start`.

        With a `postfn`, `workfn` returns `(reply, info)` and `postfn(info)` runs after
        the reply was sent, one at a time, in the order of the requests.
        Each method has its own `workers` threads, and its handler runs nowhere else.
        With `once`, a client that repeats a request gets the stored reply. Arrays are
        read-only when they arrive, and must not be changed any more after they were
        returned.
        """

    @abc.abstractmethod
    def bind_batched(
        self,
        name: str,
        workfn: Callable,
        postfn: Callable | None = None,
        batch: int = 1,
        max_wait: float | Callable[[], float] = MAX_WAIT,
        workers: int = 1,
        once: bool = False,
    ) -> None:
        """Serves calls of many clients by one `workfn` over [rows, ...] arrays.

        A batch is dispatched when `batch` rows wait, when every client that uses the
        method waits, or `max_wait` seconds after its first row came or, if all workers
        were busy then, after one of them was free. `max_wait` may be a function, which
        is called for each batch. `workers` are as in `bind`.
        """

    @abc.abstractmethod
    def start(self, block: bool = True) -> None:
        """Begins to serve; with `block` until `close` or a failing postfn."""

    @abc.abstractmethod
    def wait(self, timeout: float | None = None) -> bool:
        """Blocks until the server is closed; raises what a postfn raised."""

    @abc.abstractmethod
    def close(self) -> None:
        """Stops serving. Handlers that do not end in time are left behind."""

    def empty(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """An array to fill and return, which local clients receive without a copy."""
        return np.empty(shape, dtype)

    def __enter__(self) -> Self:
        self.start(block=False)
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class Client(abc.ABC):
    """Calls the methods of one server: `client.call('method', *args).result()`."""

    @abc.abstractmethod
    def call(self, method: str, *args: Any, rows: int = 0) -> Future:
        """Sends a request; blocks while `maxinflight` calls are unanswered.

        With `rows`, all arrays have that many rows for a batched method, and so has
        the answer. Arrays must not be changed until the future is done.
        """

    @abc.abstractmethod
    def connect(self, timeout: float | None = None) -> None:
        """Blocks until the server answers; raises Timeout, Refused, Disconnected."""

    @property
    @abc.abstractmethod
    def connected(self) -> bool:
        """Whether the server answered on the current connection."""

    @abc.abstractmethod
    def close(self) -> None:
        """Ends all waiting calls with Disconnected."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
