"""Book of places: where the servers of a run are, and who has to be told."""

import threading
from collections.abc import Callable, Iterable

from ...address_book import Places

__all__ = ['Book']


class Book:
    """Filled by the threads that start servers, read by those that start roles.

    number: of places that were told before, by another book.
    """

    def __init__(self, names: Iterable[str], number: int = 0):
        self._names = frozenset(names)
        self._change = threading.Condition(threading.RLock())
        self._places = Places(number)
        self._followers: list[Callable[[Places], object]] = []

    def publish(self, name: str, address: str) -> None:
        """A server has, or will have, this address; its clients are told."""
        with self._change:
            number, addresses = self._places
            self.replace(Places(number + 1, {**addresses, name: address}))

    def replace(self, places: Places) -> None:
        """Takes over all places from somebody who knows them."""
        with self._change:
            self._places = places
            for follower in self._followers:
                follower(places)
            self._change.notify_all()

    @property
    def number(self) -> int:
        """Of the newest places."""
        return self._places.number

    def follow(self, follower: Callable[[Places], object]) -> None:
        """Calls it, without delay, with all that is published from now on."""
        with self._change:
            self._followers.append(follower)

    def leave(self, follower: Callable[[Places], object]) -> None:
        with self._change:
            self._followers.remove(follower)

    def await_all(self, cancelled: Callable[[], bool]) -> Places:
        """Blocks until all servers have an address, or `cancelled` after a `wake`."""
        complete = lambda: self._places.addresses.keys() >= self._names
        with self._change:
            self._change.wait_for(lambda: complete() or cancelled())
            return self._places

    def wake(self) -> None:
        """Something may have been cancelled."""
        with self._change:
            self._change.notify_all()
