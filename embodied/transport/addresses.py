"""Addresses: `host:port` texts, the endpoints behind them, and free ports."""

import ipaddress
import random
import socket
import sys
from pathlib import Path
from typing import NamedTuple

from embodied.core.errors import ConfigError

__all__ = ['Address', 'free_port', 'has_unix', 'parse']

EPHEMERAL_FILE = Path('/proc/sys/net/ipv4/ip_local_port_range')
EPHEMERAL = (32768, 60999)  # where the kernel does not say
LOWEST_PORT = 10000
HIGHEST_PORT = 65535
TRIES = 1000


class Address(NamedTuple):
    """The address of a server. `direct` means TCP even on the same host."""

    host: str
    port: int
    direct: bool = False

    @property
    def loopback(self) -> bool:
        if self.host == 'localhost':
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def tcp(self) -> str:
        host = '127.0.0.1' if self.host == 'localhost' else self.host
        return (
            f'tcp://[{host}]:{self.port}'
            if ':' in host
            else f'tcp://{host}:{self.port}'
        )

    def resolved(self) -> 'Address':
        """The address with a number instead of a name, as ZeroMQ needs to listen."""
        if self.loopback:
            return self
        try:
            found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        except OSError as e:
            raise ConfigError(
                f"The host '{self.host}' is unknown ({e}). Give an address of this "
                f'machine, or 0.0.0.0 for all of them.'
            ) from e
        return self._replace(host=str(found[0][4][0]))

    @property
    def unix(self) -> str:
        """Name of the socket for processes on this host; it leaves no file.

        It follows from the port, which only one process on this host can hold.
        """
        return f'\0dreamer-{self.port}'

    @property
    def local(self) -> bool:
        """Whether it is reached through a Unix socket, by processes on this host."""
        return self.loopback and not self.direct and has_unix()

    @property
    def text(self) -> str:
        """The address as a user writes it."""
        return f'{self.host}:{self.port}' if self.local else self.tcp


def has_unix() -> bool:
    """Whether this platform has sockets with names and without files."""
    return sys.platform == 'linux'


def parse(text: str | int) -> Address:
    """Reads `port`, `:port`, `host:port`, `[ipv6]:port` or `tcp://host:port`."""
    rest = str(text).removeprefix('tcp://')
    host, _, port = rest.rpartition(':')
    host = host.strip('[]') or 'localhost'
    host = '0.0.0.0' if host == '*' else host
    if not port.isdecimal() or not 0 < int(port) <= HIGHEST_PORT or '/' in host:
        raise ConfigError(
            f"'{text}' is not an address. Give host:port, such as localhost:7000, "
            f'with a port from 1 to {HIGHEST_PORT}.'
        )
    return Address(host, int(port), str(text).startswith('tcp://'))


def free_port() -> int:
    """A port on which no process listens now.

    It lies outside of the ephemeral range: a client that tries to connect to a port
    inside may be given that very port for its own end, and then talks to itself.
    """
    low, high = _ephemeral_range()
    below = range(LOWEST_PORT, low)
    above = range(high + 1, HIGHEST_PORT)
    for _ in range(TRIES):
        draw = random.SystemRandom().randrange(len(below) + len(above))
        port = below[draw] if draw < len(below) else above[draw - len(below)]
        if _is_free(port):
            return port
    raise ConfigError(
        f'No free port found between {LOWEST_PORT} and {HIGHEST_PORT} outside of '
        f'{low} to {high}. Give an explicit port.'
    )


def _ephemeral_range() -> tuple[int, int]:
    if not EPHEMERAL_FILE.exists():
        return EPHEMERAL
    low, high = EPHEMERAL_FILE.read_text().split()
    # With the range at its widest there is no outside left; keep the usual one.
    if int(low) <= LOWEST_PORT and int(high) >= HIGHEST_PORT:
        return EPHEMERAL
    return max(int(low), LOWEST_PORT), min(int(high), HIGHEST_PORT - 1)


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        try:
            sock.bind(('', port))
        except OSError:
            return False
        return True
