"""Wires: what carries messages between a client and a server, seen from both ends.

    client   ClientConnection   one connection to a server
    server   Listener           accepts connections
             ServerConnection   one of them

There are two kinds: `unix_*` between processes of one host, `zmq_*` over TCP. Both
carry messages as lists of frames, see `codec/frames.py`.
"""

import abc
import select
from typing import TYPE_CHECKING, Protocol

from ..codec.shared_memory import SlabReader
from .event_loop import Loop
from .wake_queue import WakeQueue

if TYPE_CHECKING:
    from ..sessions import Session

__all__ = ['ClientConnection', 'ConnectionHandler', 'Listener', 'ServerConnection']


class ClientConnection(abc.ABC):
    """One connection of a client, from the attempt to open it until it is lost.

    Only `wait` and `watch`, which block, are called without the client's lock.
    """

    established = False  # messages can be sent
    lost = False  # nothing can be sent or received any more
    unsent = False  # frames are left that `maintain` sends
    # Whether sending and receiving can clear the signal that a message has arrived. If
    # so, `receive` has to be called before `wait`.
    swallows_signals = False

    def __init__(self, signal: int) -> None:
        """signal: a descriptor that is readable if frames may have arrived."""
        self._wakes = WakeQueue()
        self._wake_event = (self._wakes.fileno(), select.POLLIN)
        self._poller = select.poll()
        self._poller.register(signal, select.POLLIN)
        self._poller.register(self._wakes.fileno(), select.POLLIN)

    @abc.abstractmethod
    def send(self, frames: list) -> bool:
        """Sends without blocking; False if the connection is lost."""

    @abc.abstractmethod
    def receive(self) -> list[list]:
        """Messages that have arrived, each as a list of frames; may set `lost`."""

    def wait(self, timeout: float | None) -> None:
        """Blocks until frames may have arrived, until `wake`, or for `timeout` s."""
        ready = self._poller.poll(None if timeout is None else 1000 * timeout)
        if self._wake_event in ready:
            self._wakes.take()

    def wake(self) -> None:
        """Ends the `wait` of another thread."""
        self._wakes.put(None)

    @abc.abstractmethod
    def watch(self, queue: WakeQueue, messages: bool, timeout: float | None) -> None:
        """Blocks until `maintain` is due, `queue` has items, or for `timeout` s.

        With `messages`, also until frames may have arrived.
        """

    @abc.abstractmethod
    def maintain(self) -> None:
        """Sends what is unsent; may set `established` and `lost`."""

    @abc.abstractmethod
    def disconnect(self) -> None:
        """Begins to end the connection; `lost` is set by the next `maintain`."""

    @abc.abstractmethod
    def close(self) -> None:
        """Releases the descriptors."""


class ServerConnection(abc.ABC):
    """One connection of a server. Any thread may send."""

    name: str  # for messages; unique within the server
    # Set by the handshake:
    session: 'Session | None' = None
    slabs: SlabReader | None = None  # of the client, if they can be mapped here
    maps_slabs = False  # whether the client can map ours

    @abc.abstractmethod
    def send(self, frames: list) -> None:
        """Sends without blocking; failures are reported to the handler."""

    @abc.abstractmethod
    def close(self) -> None:
        """Ends the connection; if the wire cannot do that, ignores what arrives."""


class ConnectionHandler(Protocol):
    """Receives what listeners report, in the thread of the event loop."""

    def received(self, connection: ServerConnection, frames: list) -> None:
        """A complete message has arrived."""

    def malformed(self, connection: ServerConnection, reason: str) -> None:
        """The bytes that arrived are not a message."""

    def overflowed(self, connection: ServerConnection) -> None:
        """More replies are unread than `Settings.max_unread` allows."""

    def lost(self, connection: ServerConnection) -> None:
        """The connection has ended."""


class Listener(abc.ABC):
    """Accepts connections. It belongs to the event loop of its server."""

    @abc.abstractmethod
    def open(self, loop: Loop, handler: ConnectionHandler) -> None:
        """Begins to listen; raises OSError if the address is in use."""

    @abc.abstractmethod
    def close(self, grace: float) -> None:
        """Ends all connections; unsent replies get `grace` seconds."""
