"""Book of places: where the servers of a run are, and who has to be told."""

import threading
from collections.abc import Callable, Iterable

from ..parallel.directory import Places

__all__ = ['Book']


class Book:
    """Filled by the threads that start servers, read by those that start roles."""

    def __init__(self, names: Iterable[str]):
        self._names = frozenset(names)
        self._change = threading.Condition()
        self._places = Places()
        self._followers: list[Callable[[Places], object]] = []

    def publish(self, name: str, address: str) -> None:
        """A server has, or will have, this address; its clients are told."""
        with self._change:
            number, addresses = self._places
            self._places = Places(number + 1, {**addresses, name: address})
            for follower in self._followers:
                follower(self._places)
            self._change.notify_all()

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
