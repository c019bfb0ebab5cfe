"""Context of a role: opens its servers and clients with the transport of the run."""

from collections.abc import Mapping
from typing import Any

from ... import transport
from ...transport import addresses, keys
from . import run_id
from .address_book import address_book
from .settings import ParallelSettings

__all__ = ['await_server', 'crosses_network', 'make_client', 'make_server']

NOTICE_SECONDS = 5.0  # of silence before a role says what it waits for


def make_server(
    addr: str,
    name: str,
    settings: ParallelSettings,
    declared: Mapping[str, str] | None = None,
) -> transport.ServerInterface:
    """A server at `addr`, to be bound and started by the caller.

    declared: what clients that declare it, too, must agree with.
    """
    addr = address_book().find(addr)
    options = _common(settings, declared)
    if not addresses.parse(addr).loopback:
        options['keys'] = keys.load(settings.logdir / 'keys').server
    return transport.Server(addr, name, settings.transport, **options)


def make_client(
    addr: str,
    name: str,
    settings: ParallelSettings,
    maxinflight: int = 16,
    declared: Mapping[str, str] | None = None,
) -> transport.ClientInterface:
    """A client that connects, and connects again, by itself, wherever `addr` is."""

    def make(addr: str) -> transport.ClientInterface:
        options = _common(settings, declared)
        if not addresses.parse(addr).loopback:
            options['keys'] = keys.load(settings.logdir / 'keys').client
        return transport.Client(addr, name, maxinflight, settings.transport, **options)

    return address_book().connect(addr, make)


def await_server(client: transport.ClientInterface, what: str, addr: str) -> None:
    """Blocks until the server answers, however late it is started."""
    try:
        client.connect(NOTICE_SECONDS)
    except transport.Timeout:
        place = address_book().find(addr)
        print(f'Waiting for the {what} at {place} to be started.', flush=True)
        client.connect()


def crosses_network(addr: str, settings: ParallelSettings) -> bool:
    """Whether answers from there may take long because they come from far away."""
    local = addresses.parse(address_book().find(addr)).local
    return settings.transport == 'zmq' and not local


def _common(
    settings: ParallelSettings, declared: Mapping[str, str] | None
) -> dict[str, Any]:
    run = settings.run_id or run_id.read(settings.logdir)
    shared = {**settings.shared, **(declared or {})}
    return {
        'identity': transport.Identity(run, shared),
        'encrypt': settings.encrypt,
    }
