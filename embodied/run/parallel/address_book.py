"""Address book: finds the servers of a run, which may move while it goes on.

A role is given the addresses of servers. An engine that starts roles on other machines
gives names instead, and a service on that machine which knows what they stand for.
"""

import dataclasses
import functools
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Self

from ... import transport

__all__ = ['ENVIRONMENT', 'AddressBook', 'serve']

ENVIRONMENT = 'DREAMER_ADDRESSES'  # variable with the address of the service
LOOKUPS = 16  # at the same time, of one role


@dataclasses.dataclass(frozen=True)
class AddressBook:
    """Looks up the addresses behind names.

    service: the address of `serve`; '' if there are no names.
    """

    service: str = ''

    @classmethod
    def of(cls, environ: Mapping[str, str] = os.environ) -> Self:
        """The address book of a process with these variables."""
        return cls(environ.get(ENVIRONMENT, ''))

    def is_name(self, addr: str) -> bool:
        """Whether it stands for an address that may change."""
        return bool(self.service) and addr.isidentifier()

    def find(self, addr: str) -> str:
        """The address now; blocks until there is one. An address stands for itself."""
        if not self.is_name(addr):
            return addr
        with transport.Client(self.service, 'Lookup') as client:
            return client.call('find', addr).result()

    def resolver(self, addr: str) -> str | transport.Resolver:
        """What a client needs to find a server: the address, or a function."""
        return functools.partial(self.find, addr) if self.is_name(addr) else addr


@contextmanager
def serve(find: Callable[[str], str]) -> Iterator[dict[str, str]]:
    """Serves `find` on this machine; yields the variables that a role needs for it."""
    addr = f'localhost:{transport.free_port()}'
    # The role is gone when this ends, so no lookup is waited for.
    settings = transport.Settings(grace=0.0)
    server = transport.Server(addr, 'Addresses', settings=settings)
    server.bind('find', find, workers=LOOKUPS)
    with server:
        yield {ENVIRONMENT: addr}
