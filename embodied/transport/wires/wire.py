"""Wires: what carries messages between a client and a server, seen from both ends.

    client   ClientConnection   its way to one server, through all reconnections
    server   Listener           where connections come in
             ServerConnection   one of these connections

Two kinds exist: `unix_*` between processes of one host, `zmq_*` for everything else.
Both carry lists of frames, see `wire.py`.
"""

import abc
from collections.abc import Callable
from typing import Any, Protocol

from ..addresses import Address
from .event_loop import Loop
from .wake_queue import WakeQueue

__all__ = ['ConnectionHandler', 'ClientConnection', 'ServerConnection', 'Listener']


class ClientConnection(abc.ABC):
    """A client's way to its server.

    Only `wait` and `watch`, which block, are called without the client's lock.
    `on_change` is called with the lock: True for a new connection, False for the end
    of one. Frames that arrived earlier were received by then.
    """

    endpoint: str
    on_change: Callable[[bool], None]
    unsent = False  # some of it is left for `look`
    # Whether using the line can swallow the signal that something arrived. Then one
    # has to receive before sleeping.
    swallows_signals = False

    @abc.abstractmethod
    def send(self, frames: list) -> bool:
        """False when the connection is gone; its successor will send again."""

    @abc.abstractmethod
    def receive(self) -> list[list]:
        """Messages that have arrived, as lists of frames; none when there are none."""

    @abc.abstractmethod
    def wait(self, timeout: float | None) -> None:
        """Blocks until frames may have arrived, or `wake`, or time is up."""

    @abc.abstractmethod
    def wake(self) -> None:
        """Ends the `wait` of another thread."""

    @abc.abstractmethod
    def watch(self, mail: WakeQueue, messages: bool, timeout: float | None) -> None:
        """Blocks until the connection needs a `look`, or mail, or time is up.

        With `messages`, also until frames may have arrived.
        """

    @abc.abstractmethod
    def look(self) -> None:
        """Does what is due: connects, sends the rest, notices ends."""

    @abc.abstractmethod
    def reconnect(self) -> None:
        """Ends this connection; the next one follows by itself."""

    @abc.abstractmethod
    def move(self, address: Address) -> None:
        """Ends this connection; the next one goes to another address."""

    @abc.abstractmethod
    def close(self) -> None:
        """Gives everything back; nobody waits or watches any more."""


class ServerConnection(abc.ABC):
    """One connection of a server. Any thread may send."""

    name: str  # never used for another one
    peer: Any = None  # who said hello on it

    @abc.abstractmethod
    def send(self, frames: list) -> None:
        """Hands frames over without blocking; the host learns of failures."""

    @abc.abstractmethod
    def close(self) -> None:
        """Hangs up, where that is possible, or does not listen any more."""


class ConnectionHandler(Protocol):
    """What a server does for its ports, in the thread of the loop."""

    def received(self, link: ServerConnection, frames: list) -> None:
        """A whole message came."""

    def broken(self, link: ServerConnection, reason: str) -> None:
        """Something came that is not a message."""

    def slow(self, link: ServerConnection) -> None:
        """The peer leaves more replies unread than it may."""

    def lost(self, link: ServerConnection) -> None:
        """The connection is gone."""


class Listener(abc.ABC):
    """Where connections come in. Lives in the loop of its server."""

    @abc.abstractmethod
    def open(self, loop: Loop, host: ConnectionHandler) -> None:
        """Begins to listen; raises OSError when the address is taken."""

    @abc.abstractmethod
    def close(self, grace: float) -> None:
        """Hangs up, after at most `grace` seconds for what is unsent."""
