"""Unix sockets: names without files, and the user at the other end."""

import os
import socket
import struct

from ..addresses import Address

__all__ = ['connect', 'credentials', 'listen', 'reserve', 'trusted']

CREDENTIALS = struct.Struct('3i')  # process, user, group
ROOT = 0


def listen(address: Address, queue: int) -> socket.socket:
    """A listening socket; raises OSError when the address is taken."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.bind(address.unix)
        sock.listen(queue)
    except OSError:
        sock.close()
        raise
    sock.setblocking(False)
    return sock


def reserve(address: Address) -> socket.socket:
    """Reserves the port number in TCP, without listening."""
    family = socket.AF_INET6 if ':' in address.host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    host = '127.0.0.1' if address.host == 'localhost' else address.host
    try:
        sock.bind((host, address.port))
    except OSError:
        sock.close()
        raise
    return sock


def connect(address: Address) -> socket.socket | None:
    """A connected socket, if a server listens; never blocks."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.setblocking(False)
    try:
        sock.connect(address.unix)
    except (ConnectionRefusedError, BlockingIOError):  # absent, or its queue is full
        sock.close()
        return None
    return sock


def credentials(sock: socket.socket) -> tuple[int, int]:
    """Process and user at the other end, as the kernel knows them."""
    raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    pid, uid, _ = CREDENTIALS.unpack(raw)
    return pid, uid


def trusted(uid: int) -> bool:
    """Whether a user could read and send all that this process does anyway."""
    return uid in (os.geteuid(), ROOT)
