"""Serving: the dashboard on a socket, with a follower as long as it runs."""

import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette

from embodied.core.errors import ConfigError

from ..series.follower import Follower
from ..series.reference import Reference
from .app import make_app
from .http_connection import Connection

__all__ = ['listen', 'serve']


def listen(host: str, port: int) -> socket.socket:
    """A socket to serve on; port 0 takes a free one."""
    family = socket.AF_INET6 if ':' in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as e:
        raise ConfigError(
            f'Cannot serve on {host} port {port}: {e}. Choose another with --port, '
            '0 for any that is free.'
        ) from e


def serve(
    place: socket.socket,
    roots: Sequence[Path],
    references: Sequence[Reference],
    token: str | None,
    read_only: bool,
) -> None:
    """Serves until a signal asks to stop, or until following the runs fails."""
    follower = Follower(roots, lambda: server.stop())

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        follower.start()
        yield
        follower.close()

    app = make_app(follower, references, token, read_only, lifespan)
    options: dict[str, Any] = {'lifespan': 'on', 'ws': 'none'}
    config = uvicorn.Config(app, http=Connection, log_level='warning', **options)
    server = Server(config, follower)
    server.run([place])
    follower.check()


class Server(uvicorn.Server):
    """Ends the open streams when it is to stop: it would wait for them forever."""

    def __init__(self, config: uvicorn.Config, follower: Follower):
        super().__init__(config)
        self._follower = follower

    def stop(self) -> None:
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._follower.stop()
        await super().shutdown(sockets)
