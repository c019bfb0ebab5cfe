"""Lines by address: Unix sockets within this host, ZeroMQ to all others."""

from collections.abc import Callable

from .addresses import Address
from .interface import Settings
from .keys import ClientKeys
from .links import Line
from .unix_line import UnixLine
from .zmq_line import ZmqLine

__all__ = ['make_line']


def make_line(
    address: Address,
    keys: ClientKeys | None,
    encrypt: bool,
    settings: Settings,
    on_change: Callable[[bool], None],
) -> Line:
    """The way of a client to the server at this address."""
    if address.local:
        return UnixLine(address, keys is not None, settings, on_change)
    return ZmqLine(address, keys if encrypt else None, settings, on_change)
