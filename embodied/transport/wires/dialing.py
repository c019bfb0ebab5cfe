"""Lines by address: Unix sockets within this host, ZeroMQ to all others."""

from collections.abc import Callable

from ..addresses import Address
from ..interface import Settings
from ..keys import ClientKeys
from .unix_client import UnixClientConnection
from .wire import ClientConnection
from .zmq_client import ZmqClientConnection

__all__ = ['open_connection']


def open_connection(
    address: Address,
    keys: ClientKeys | None,
    encrypt: bool,
    settings: Settings,
    on_change: Callable[[bool], None],
) -> ClientConnection:
    """The way of a client to the server at this address."""
    if address.local:
        return UnixClientConnection(address, keys is not None, settings, on_change)
    return ZmqClientConnection(address, keys if encrypt else None, settings, on_change)
