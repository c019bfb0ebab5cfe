"""Address registry: where the servers of a run are. A Ray actor.

The launcher writes to it, and ends it with the run. Keepers ask it for their roles, and
launchers that join the run find it by its name.
"""

import asyncio
import collections

__all__ = ['NAMESPACE', 'AddressRegistry', 'registry_name']

NAMESPACE = 'dreamer-parallel'  # in which Ray looks for names


class AddressRegistry:
    """Addresses by the names of servers. Ray runs all calls in one thread."""

    def __init__(self) -> None:
        self._addresses: dict[str, str] = {}
        self._changed = asyncio.Condition()
        self._left: collections.defaultdict[str, asyncio.Event]
        self._left = collections.defaultdict(asyncio.Event)

    async def publish(self, name: str, address: str) -> None:
        """A server has, or will have, this address."""
        async with self._changed:
            self._addresses[name] = address
            self._changed.notify_all()

    async def withdraw(self, name: str, address: str) -> None:
        """The server at this address has ended."""
        if self._addresses.get(name) == address:
            del self._addresses[name]

    async def find(self, name: str) -> str:
        """The address of a server; blocks while there is none."""
        async with self._changed:
            await self._changed.wait_for(lambda: name in self._addresses)
            return self._addresses[name]

    async def attend(self, launcher: str) -> None:
        """Blocks until `leave`. The call fails if the run ends before that."""
        await self._left[launcher].wait()
        del self._left[launcher]

    async def leave(self, launcher: str) -> None:
        """Ends the `attend` of a launcher."""
        self._left[launcher].set()


def registry_name(logdir: str) -> str:
    return f'run in {logdir}'
