"""Connections without a handshake: closed, bounded in number, and without memory."""

import contextlib
import itertools
import resource
import socket
import struct
import time

import psutil
import pytest
import zmq
from raw_client import bare_socket, port_of, raw_client, send_opening
from waiting import await_hang_up

from embodied import transport
from embodied.transport import addresses
from embodied.transport.codec import frames as wire
from embodied.transport.portal import hardened_socket
from embodied.transport.wires import pending_handshakes, unix_server

DEADLINE = 60.0
COUNT = 400
GROWTH = 24 * 2**20  # bytes that a server may grow by, with all of them connected
PATIENCE = 2.0
GREETING = b'\xff' + bytes(8) + b'\x7f\x03\x00NULL' + bytes(16 + 32)
READY = b'\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER'

# What a connection sends before it falls silent.
WORDS = {
    'unix': {
        'nothing': b'',
        'half a size': b'\x00\x01',
        'a large frame': struct.pack('<I', 2**20 - 1),
        'the largest opening': struct.pack('<I', 2**16),
        'a frame that never ends': struct.pack('<I', 2**15) + bytes(100),
    },
    'tcp': {
        'nothing': b'',
        'half a greeting': GREETING[:20],
        'a large frame': GREETING + b'\x02' + (2**29).to_bytes(8, 'big'),
        'a handshake': GREETING + bytes([4, len(READY)]) + READY,
    },
    'portal': {
        'nothing': b'',
        'half a handshake': b'portal_',
        'a large message': b'portal_handshake' + (2**29).to_bytes(8, 'little'),
    },
}


@pytest.fixture(autouse=True)
def many_descriptors():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4096)), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def open_one(addr):
    address = addresses.parse(addr)
    try:
        return socket.create_connection(('127.0.0.1', address.port), DEADLINE)
    except ConnectionRefusedError:  # Only the number is reserved.
        return bare_socket(addr)


def open_many(stack, addr, count, words=b''):
    socks = [stack.enter_context(open_one(addr)) for _ in range(count)]
    for sock in socks:
        with contextlib.suppress(ConnectionError):  # closed already
            sock.sendall(words)
    return socks


@contextlib.contextmanager
def watching(sock):
    """A socket that reports when connections of `sock` end."""
    with sock.get_monitor_socket(zmq.EVENT_DISCONNECTED) as monitor:
        yield monitor
        sock.disable_monitor()


def is_over(sock):
    """Whether the server has closed the connection."""
    sock.setblocking(False)
    try:
        while sock.recv(2**16):
            pass
    except BlockingIOError:
        return False
    return True


@pytest.mark.parametrize('way', WORDS)
def test_silent_connections_are_closed_and_cost_no_memory(
    child, connect, stack, addr, backend, way
):
    process = child('server', addr, backend, PATIENCE)
    assert process.stdout.readline() == 'ready\n'
    client = connect(transport=backend)
    server = psutil.Process(process.pid)
    assert client.call('echo', 1).result(DEADLINE) == 1
    before, files = server.memory_info().rss, server.num_fds()
    begin = time.monotonic()
    kinds = WORDS[way].values()
    many = (open_many(stack, addr, COUNT // len(kinds), words) for words in kinds)
    socks = list(itertools.chain.from_iterable(many))
    for number in range(20):  # Others are served meanwhile.
        assert client.call('echo', number).result(DEADLINE) == number
    assert server.memory_info().rss - before < GROWTH
    assert all(map(await_hang_up, socks))
    assert time.monotonic() - begin < DEADLINE / 2
    assert client.call('echo', 1).result(DEADLINE) == 1
    assert server.memory_info().rss - before < GROWTH
    assert server.num_fds() <= files + 1


@pytest.mark.parametrize('way', ['unix', 'tcp', 'portal'])
def test_the_oldest_silent_connection_is_closed(
    serve, connect, stack, addr, backend, monkeypatch, way
):
    monkeypatch.setattr(unix_server, 'MAX_PENDING', 20)
    monkeypatch.setattr(pending_handshakes, 'MOST', 20)
    monkeypatch.setattr(hardened_socket, 'MAX_PENDING', 20)
    settings = transport.Settings(patience=300.0)
    serve(transport_=backend, options={'settings': settings}, f=lambda: 1)
    client = connect(transport=backend)
    socks = open_many(stack, addr, 30)
    assert all(map(await_hang_up, socks[:10]))
    assert client.call('f').result(DEADLINE) == 1
    assert not any(map(is_over, socks[10:]))


def test_a_zeromq_client_without_our_handshake_is_disconnected(stack):
    addr = f'tcp://127.0.0.1:{transport.free_port()}'
    settings = transport.Settings(patience=1.0, heartbeat=0.3)
    server = transport.Server(addr, settings=settings)
    server.bind('f', lambda: 1)
    stack.enter_context(server)
    client = stack.enter_context(transport.Client(addr))
    client.connect(DEADLINE)
    with zmq.Context() as context, context.socket(zmq.DEALER) as sock:
        sock.set(zmq.LINGER, 0)
        with watching(sock) as monitor:
            sock.connect(f'tcp://127.0.0.1:{port_of(addr)}')
            assert monitor.poll(1000 * DEADLINE)  # It answers heartbeats, and still.
    with raw_client(addr) as known, watching(known) as monitor:
        assert send_opening(known).kind == wire.Kind.ACCEPTED
        assert not monitor.poll(3000)
    assert client.call('f').result(DEADLINE) == 1


def test_a_descriptor_that_is_used_by_another_connection_now_is_left_alone():
    ours, theirs = socket.socketpair()
    calls = []
    pending = pending_handshakes.PendingHandshakes(0.0, lambda: [do() for do in calls])
    with ours, theirs:
        fd = ours.fileno()
        pending.add(fd)

        def reuse():  # The end of the first is announced, and the number used again.
            pending.remove(fd)

        calls.append(reuse)
        assert pending.close_due(time.monotonic()) == 0
        theirs.sendall(b'x')
        assert ours.recv(1) == b'x'
        calls.clear()
        pending.add(fd)
        assert pending.close_due(time.monotonic()) == 1
        assert theirs.recv(1) == b''
