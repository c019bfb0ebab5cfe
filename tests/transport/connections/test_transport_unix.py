"""Processes of one host talk over Unix sockets, to their own user only."""

import os
import random
import resource
import socket
import subprocess
import sys

import internals
import numpy as np
import pytest
from raw_client import bare_socket, port_of

from embodied import transport
from embodied.transport import addresses
from embodied.transport.codec import frames as wire
from embodied.transport.codec.encoding import pack, unpack_value
from embodied.transport.wires import unix_socket
from embodied.transport.wires.stream import SCRATCH, SIZE, Stream

pytestmark = pytest.mark.skipif(sys.platform != 'linux', reason='needs their names')

DEADLINE = 60.0
OTHER_USER = 65534
LIMIT = 2**20


@pytest.fixture
def addr():
    return f'localhost:{transport.free_port()}'


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield Stream(ours, LIMIT, LIMIT), theirs


def drain(stream):
    messages = []
    try:
        while True:
            messages += stream.receive(memoryview(bytearray(SCRATCH)))
    except (BlockingIOError, EOFError):
        return messages


def test_a_local_address_is_not_served_over_tcp(serve, connect, addr):
    serve(f=lambda: 1)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(('127.0.0.1', port_of(addr)))
    with pytest.raises(OSError, match='in use'):
        socket.create_server(('127.0.0.1', port_of(addr)))
    assert connect().call('f').result(DEADLINE) == 1


def test_an_address_with_tcp_is_served_to_local_clients_too(stack, connect):
    port = transport.free_port()
    server = transport.Server(f'tcp://127.0.0.1:{port}')
    server.bind('f', lambda: 1)
    stack.enter_context(server)
    for host in ('localhost', 'tcp://127.0.0.1'):
        assert connect(addr=f'{host}:{port}').call('f').result(DEADLINE) == 1


@pytest.mark.skipif(
    os.geteuid() != 0, reason='only root can become another user: run the tests as root'
)
def test_other_users_are_refused_and_logged_once(serve, connect, addr, caplog):
    serve(f=lambda: 1)
    code = (
        'import os, socket, sys\n'
        f'os.setuid({OTHER_USER})\n'
        'for _ in range(3):\n'
        '    sock = socket.socket(socket.AF_UNIX)\n'
        "    sock.connect('\\0' + sys.argv[1])\n"
        "    assert sock.recv(1) == b''\n"
    )
    name = f'dreamer-{port_of(addr)}'
    subprocess.run([sys.executable, '-c', code, name], check=True, timeout=DEADLINE)
    assert connect().call('f').result(DEADLINE) == 1
    refused = [r for r in caplog.records if 'only the owner' in r.getMessage()]
    assert len(refused) == 1


def test_a_server_of_another_user_is_refused(serve, connect, monkeypatch):
    monkeypatch.setattr(unix_socket, 'ROOT', OTHER_USER)
    monkeypatch.setattr(unix_socket.os, 'geteuid', lambda: OTHER_USER)
    serve(f=lambda: 1)
    client = connect(wait=False)
    with pytest.raises(transport.Refused, match='belongs to user'):
        client.connect(DEADLINE)


def test_a_connection_without_a_handshake_is_closed(serve, connect, addr):
    settings = transport.Settings(patience=0.2)
    server = serve(options={'settings': settings}, f=lambda: 1)
    client = connect()
    with bare_socket(addr) as sock:
        assert sock.recv(1) == b''
    assert client.call('f').result(DEADLINE) == 1
    assert internals.clients(server) == 1


def test_without_descriptors_accepting_pauses_for_a_while(serve, connect, addr, caplog):
    serve(f=lambda: 1)
    first = connect()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.socket(socket.AF_UNIX) as late:
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
        try:
            late.connect(addresses.parse(addr).unix)
            for _ in range(10):
                assert first.call('f').result(DEADLINE) == 1
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert 'accepts no connections now' in caplog.text
        assert connect().call('f').result(DEADLINE) == 1


def test_messages_arrive_whole_however_they_are_cut(pair):
    stream, theirs = pair
    rng = random.Random(0)
    sizes = [rng.choice([0, 5, 1000, 300_000]) for _ in range(30)]
    arrays = [np.full(size, index, np.uint8) for index, size in enumerate(sizes)]
    data = b''
    for array in arrays:
        frames = pack(wire.Kind.REPLY, (array, array)).frames()
        data += SIZE.pack(len(frames[0])) + b''.join(map(bytes, frames))
    messages, start = [], 0
    while start < len(data):
        stop = start + rng.choice([1, 3, 100, 50_000])
        theirs.sendall(data[start:stop])
        messages += drain(stream)
        start = stop
    values = [unpack_value(wire.unpack(frames)) for frames in messages]
    assert len(values) == len(arrays)
    for array, value in zip(arrays, values, strict=True):
        for copy in value:
            np.testing.assert_array_equal(copy, array)
            assert not copy.flags.writeable


def test_what_does_not_fit_into_the_socket_is_sent_later(pair):
    stream, theirs = pair
    sent = [[bytes([index]) * 300_000] for index in range(10)]
    assert all(stream.send(frames) for frames in sent)
    assert stream.unsent > 0
    received = b''
    while len(received) < 10 * (SIZE.size + 300_000):
        received += theirs.recv(SCRATCH)
        assert stream.flush()
    assert stream.unsent == 0
    whole = [SIZE.pack(300_000) + frames[0] for frames in sent]
    assert received == b''.join(whole)


@pytest.mark.parametrize(
    'frames',
    [
        [SIZE.pack(LIMIT + 1)],
        [SIZE.pack(2**32 - 1)],
        pack(wire.Kind.REPLY, np.zeros(2 * LIMIT, np.uint8)).frames()[:1],
        pack(wire.Kind.REPLY, [np.zeros(LIMIT // 2, np.uint8)] * 3).frames()[:1],
    ],
    ids=['frame', 'huge', 'array', 'arrays'],
)
def test_sizes_beyond_the_limit_are_refused_before_they_arrive(pair, frames):
    stream, theirs = pair
    (head,) = frames
    theirs.sendall(head if len(head) == SIZE.size else SIZE.pack(len(head)) + head)
    with pytest.raises(transport.MessageError, match='announced'):
        drain(stream)
