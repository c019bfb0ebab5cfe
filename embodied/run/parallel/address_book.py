"""Address book: where the servers of a run are, as far as this process was told.

Roles that are started on machines of a cluster know their peers by names. The launcher
tells the addresses behind them when a role starts, and again when a server has moved.
"""

import functools
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from ...transport import ClientInterface

__all__ = ['AddressBook', 'Places', 'address_book']


class Places(NamedTuple):
    """Addresses by the names that stand for them; higher numbers are newer."""

    number: int = 0
    addresses: Mapping[str, str] = {}


class AddressBook:
    """Finds addresses, and lets clients follow their servers.

    An address that nobody has named stands for itself. Roles that are lost have ended
    for good: there is no address at which they could be waited for.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._places = Places()
        self._clients: list[tuple[str, ClientInterface]] = []
        self._lost: frozenset[str] = frozenset()

    def find(self, name: str) -> str:
        return self._places.addresses.get(name, name)

    def connect(
        self, name: str, make: Callable[[str], ClientInterface]
    ) -> ClientInterface:
        """`make(address)`, a client that moves when the server does."""
        with self._lock:
            client = make(self.find(name))
            if name in self._places.addresses:
                self._clients.append((name, client))
        return client

    def update(self, places: Places) -> None:
        """Takes newer addresses and moves those clients whose server has moved."""
        with self._lock:
            if places.number <= self._places.number:
                return
            before, self._places = self._places, places
            for name, client in self._clients:
                addr = places.addresses[name]
                if addr != before.addresses.get(name):
                    client.move(addr)

    def lose(self, roles: Iterable[str]) -> None:
        self._lost |= frozenset(roles)

    def has_lost(self, role: str) -> bool:
        return role in self._lost


@functools.cache
def address_book() -> AddressBook:
    """That of this process."""
    return AddressBook()
