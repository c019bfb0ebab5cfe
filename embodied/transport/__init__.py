"""Calls between processes: servers with methods, clients with futures.

server = transport.Server('localhost:7000', 'Replay')
server.bind('add', lambda step: ...)
server.start(block=False)

client = transport.Client('localhost:7000', 'Actor')
client.call('add', {'image': image}).result(timeout=10)
"""

from typing import Any

from embodied.core.errors import ConfigError
from embodied.core.renamed import renew

from . import keys
from .addresses import free_port
from .errors import (
    AddressInUse,
    Disconnected,
    MessageError,
    Refused,
    RefusedRows,
    RemoteError,
    Timeout,
    TransportError,
    Unanswered,
)
from .futures import Future
from .handshake.identity import Identity
from .interface import Client as ClientInterface
from .interface import Request, Resolver, Settings, current_requests
from .interface import Server as ServerInterface

__all__ = [
    'AddressInUse',
    'Client',
    'ClientInterface',
    'Disconnected',
    'Future',
    'Identity',
    'MessageError',
    'Refused',
    'RefusedRows',
    'RemoteError',
    'Request',
    'Resolver',
    'Server',
    'ServerInterface',
    'Settings',
    'Timeout',
    'TransportError',
    'Unanswered',
    'current_requests',
    'free_port',
    'keys',
]

TRANSPORTS = ('native', 'portal')


def Server(  # noqa: N802 - reads as the class it stands for
    addr: str | int, name: str = 'Server', transport: str = 'native', **options: Any
) -> ServerInterface:
    """A server of the chosen backend; see `WireServer` for the options."""
    transport = _renew(transport)
    if transport == 'native':
        from .server import WireServer

        return WireServer(addr, name, **options)
    if transport == 'portal':
        from .portal.server import PortalServer

        return PortalServer(addr, name, **options)
    raise _unknown(transport)


def Client(  # noqa: N802 - reads as the class it stands for
    addr: str | int | Resolver,
    name: str = 'Client',
    maxinflight: int = 16,
    transport: str = 'native',
    **options: Any,
) -> ClientInterface:
    """A client of the chosen backend; see `WireClient` for the options."""
    transport = _renew(transport)
    if transport == 'native':
        from .client import WireClient

        return WireClient(addr, name, maxinflight, **options)
    if transport == 'portal':
        from .portal.client import PortalClient

        return PortalClient(addr, name, maxinflight, **options)
    raise _unknown(transport)


def _renew(transport: str) -> str:
    return renew({'run.transport': transport})['run.transport']


def _unknown(transport: str) -> ConfigError:
    return ConfigError(
        f"run.transport='{transport}' does not exist. Choose one of {TRANSPORTS}."
    )
