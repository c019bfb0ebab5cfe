"""Bare sockets that speak, or break, the protocol by hand."""

import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from typing import Any

import zmq

from embodied.transport import addresses
from embodied.transport.codec import frames as wire
from embodied.transport.codec.encoding import pack
from embodied.transport.handshake import identity as identities
from embodied.transport.wires.stream import SCRATCH, SIZE, Stream

DEADLINE = 60.0


def port_of(addr: str) -> int:
    return addresses.parse(addr).port


def stop(process: subprocess.Popen) -> None:
    """Stops a process, and all of its threads when this returns."""
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)


def bare_socket(addr: str) -> socket.socket:
    """A connection to whatever listens at an address, before any protocol."""
    address = addresses.parse(addr)
    if address.local and not _listens(address.port):
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(DEADLINE)
        sock.connect(address.unix)
        return sock
    return socket.create_connection(('127.0.0.1', address.port), DEADLINE)


def _listens(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(('127.0.0.1', port)) == 0


class UnixClient:
    """A Unix socket that connects again when the server closes the connection."""

    def __init__(self, addr: str) -> None:
        self._addr = addr
        self._sock = bare_socket(addr)
        self._messages: list[list] = []

    def send_multipart(self, frames: list) -> None:
        data = SIZE.pack(len(frames[0])) + b''.join(map(bytes, frames))
        try:
            self._sock.sendall(data)
        except OSError:
            self._sock.close()
            self._sock = bare_socket(self._addr)
            self._sock.sendall(data)

    def recv_multipart(self) -> list:
        scratch = memoryview(bytearray(SCRATCH))
        stream = Stream(self._sock, 2**30, 2**30)
        self._sock.settimeout(DEADLINE)  # A stream does not block, this one does.
        while not self._messages:
            self._messages += stream.receive(scratch)
        return self._messages.pop(0)

    def close(self) -> None:
        self._sock.close()


@contextlib.contextmanager
def raw_client(addr: str) -> Iterator[Any]:
    """A socket connected to a server, before the handshake."""
    if addresses.parse(addr).local:
        with contextlib.closing(UnixClient(addr)) as client:
            yield client
        return
    with zmq.Context() as context, context.socket(zmq.DEALER) as sock:
        sock.set(zmq.LINGER, 1000)
        sock.set(zmq.RCVTIMEO, int(1000 * DEADLINE))
        sock.set(zmq.RCVHWM, 1)
        sock.connect(f'tcp://127.0.0.1:{port_of(addr)}')
        yield sock


def answer(sock: Any) -> wire.Message:
    """The next message, besides those by which a server finds dead connections."""
    while True:
        message = wire.unpack(sock.recv_multipart())
        if message.kind != wire.Kind.PROBE:
            return message


def send_opening(sock: Any, session: bytes = bytes(16)) -> wire.Message:
    identity = identities.Identity().plain()
    words = {'name': 'x', 'session': session, 'nonce': bytes(16), 'identity': identity}
    sock.send_multipart(pack(wire.Kind.OPEN, words).frames())
    return answer(sock)


def shake_hands(sock: Any, session: bytes = bytes(16)) -> None:
    assert send_opening(sock, session).kind == wire.Kind.ACCEPTED
