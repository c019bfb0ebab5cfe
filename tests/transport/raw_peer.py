"""A bare socket that speaks, or breaks, the protocol by hand."""

import contextlib
from collections.abc import Iterator

import zmq

from embodied.transport import addresses, hello, wire
from embodied.transport.packing import pack

DEADLINE = 60.0


def port_of(addr: str) -> int:
    return addresses.parse(addr).port


@contextlib.contextmanager
def dealer(addr: str) -> Iterator[zmq.Socket]:
    """A socket connected to a server, which has not said anything yet."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as sock:
        sock.set(zmq.LINGER, 1000)
        sock.set(zmq.RCVTIMEO, int(1000 * DEADLINE))
        sock.connect(f'tcp://127.0.0.1:{port_of(addr)}')
        yield sock


def say_hello(sock: zmq.Socket, session: bytes = bytes(16)) -> wire.Parcel:
    identity = hello.Identity().plain()
    words = {'name': 'x', 'session': session, 'nonce': bytes(16), 'identity': identity}
    sock.send_multipart(pack(wire.Kind.HELLO, words).frames())
    return wire.unpack(sock.recv_multipart())


def greet(sock: zmq.Socket, session: bytes = bytes(16)) -> None:
    assert say_hello(sock, session).kind == wire.Kind.WELCOME
