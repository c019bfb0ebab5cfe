"""Broken, hostile, slow and vanished clients do not harm a server."""

import contextlib
import gc
import os
import random
import signal
import socket
import threading

import internals
import numpy as np
import pytest
import zmq
from raw_client import bare_socket, port_of, raw_client, shake_hands, stop

from embodied import transport
from embodied.transport.codec import frames as wire
from embodied.transport.codec.encoding import pack

DEADLINE = 60.0


def hostile_frames(seed, count):
    """Random bytes, and valid messages of every kind with pieces turned over."""
    rng = random.Random(seed)
    values = [
        (np.arange(10), {'a': 'b'}),
        {'name': 'x', 'session': bytes(16), 'nonce': bytes(16), 'identity': {}},
        (np.zeros(100_000, np.uint8), [1, None]),
        None,
    ]
    for _ in range(count):
        if rng.random() < 0.2:
            yield [
                rng.randbytes(rng.randrange(200)) for _ in range(rng.randrange(1, 4))
            ]
            continue
        kind = rng.choice(wire.Kind.ALL)
        method = rng.choice([b'echo', b'rows', b'once', b'none', b'\xff'])
        rows = rng.choice([0, 0, 1, 10, 2**32 - 1])
        message = pack(kind, rng.choice(values), rng.randrange(2**64), method, rows)
        if rng.random() < 0.1:
            place = wire.Place(*(rng.randrange(2**32) for _ in range(5)))
            message = message._replace(places=(place,), buffers=())
        frames = [bytearray(frame) for frame in message.frames(rng.randrange(256))]
        for _ in range(rng.randrange(4)):
            frame = rng.choice(frames)
            if frame:
                frame[rng.randrange(min(len(frame), 200))] = rng.randrange(256)
        if rng.random() < 0.3:
            frames[-1] = frames[-1][: rng.randrange(len(frames[-1]) + 1)]
        yield [bytes(frame) for frame in frames]


@pytest.mark.parametrize('count', [500, pytest.param(10_000, marks=pytest.mark.long)])
def test_hostile_frames_leave_the_server_as_it_was(serve, connect, addr, caplog, count):
    serve(
        echo=lambda x: x,
        once={'workfn': lambda x: x, 'once': True},
        rows={'workfn': lambda x: x, 'batch': 4},
    )
    client = connect()
    with raw_client(addr) as unknown, raw_client(addr) as known:
        shake_hands(known)
        for index, frames in enumerate(hostile_frames(count, count)):
            (known if index % 2 else unknown).send_multipart(frames)
            if index % 100 == 0:
                assert client.call('echo', index).result(DEADLINE) == index
    for index in range(20):
        assert client.call('echo', index).result(DEADLINE) == index
        assert client.call('rows', index).result(DEADLINE) == index
    fresh = connect()
    assert fresh.call('once', 'x').result(DEADLINE) == 'x'
    assert 'malformed message' in caplog.text


@pytest.mark.parametrize('words', [b'', b'GET / HTTP/1.0\r\n\r\n', bytes(64)], ids=repr)
def test_port_scanners_are_ignored(backend, serve, connect, addr, words):
    serve(transport_=backend, f=lambda: 1)
    client = connect(transport=backend)
    for _ in range(20):
        with bare_socket(addr) as scanner:
            scanner.sendall(words)
        assert client.call('f').result(DEADLINE) == 1


def test_a_client_killed_in_the_middle_of_a_message_does_no_harm(
    backend, serve, connect, child, addr
):
    serve(transport_=backend, echo=lambda x: x.sum())
    client = connect(transport=backend)
    for _ in range(3):
        victim = child('client', addr, 'echo', 20_000_000, backend)
        assert victim.stdout.readline() == 'ready\n'
        assert client.call('echo', np.ones(3)).result(DEADLINE) == 3
        victim.kill()
        victim.wait()
        assert client.call('echo', np.ones(3)).result(DEADLINE) == 3


def test_a_handler_that_never_returns_holds_up_no_other(backend, serve, connect):
    release = threading.Event()
    serve(
        transport_=backend,
        stuck=lambda: release.wait(DEADLINE),
        f=lambda: 1,
        rows={'workfn': lambda x: x, 'batch': 4},
    )
    first, second = connect(transport=backend), connect(transport=backend)
    future = first.call('stuck')
    for client in (first, second):
        assert client.call('f').result(DEADLINE) == 1
        assert client.call('rows', 2).result(DEADLINE) == 2
    assert not future.done()
    release.set()


def test_ten_thousand_queued_requests_are_all_answered(backend, serve, connect):
    release = threading.Event()
    serve(transport_=backend, f=lambda x: release.wait(DEADLINE) and x)
    client = connect(transport=backend, maxinflight=10_000)
    futures = [client.call('f', index) for index in range(10_000)]
    release.set()
    assert [int(future.result(DEADLINE)) for future in futures] == list(range(10_000))


def test_a_flood_is_answered_with_errors_instead_of_memory(serve, connect):
    release = threading.Event()
    settings = transport.Settings(max_queued=1_000_000, slab_bytes=0)
    server = serve(
        options={'settings': settings}, f=lambda x: release.wait(DEADLINE) and 1
    )
    client = connect(maxinflight=100, settings=settings)
    futures = [client.call('f', np.zeros(50_000, np.uint8)) for _ in range(60)]
    with pytest.raises(transport.RemoteError, match='overloaded'):
        futures[-1].result(DEADLINE)
    assert internals.queued_bytes(server) <= 1_000_000
    release.set()
    assert futures[0].result(DEADLINE) == 1
    errors = 0
    for future in futures:
        try:
            future.result(DEADLINE)
        except transport.RemoteError:
            errors += 1
    assert 0 < errors < 60


def test_a_client_that_does_not_read_is_given_up(serve, connect, addr, caplog):
    """Its replies pile up in the server only to the limit."""
    settings = transport.Settings(max_unread=20_000_000, slab_bytes=0)
    serve(options={'settings': settings}, big=lambda: np.zeros(4_000_000, np.uint8))
    client = connect(settings=settings)
    with raw_client(addr) as sock:
        shake_hands(sock)
        for number in range(1, 60):
            frames = pack(wire.Kind.REQUEST, (), number, b'big').frames()
            sock.send_multipart(frames)
        while 'does not read its replies' not in caplog.text:
            assert len(client.call('big').result(DEADLINE)) == 4_000_000
    assert caplog.text.count('does not read its replies') == 1
    assert len(client.call('big').result(DEADLINE)) == 4_000_000


class Cut:
    """A wire that can go dead without telling either end, as networks do."""

    def __init__(self, port):
        self._target = ('127.0.0.1', port)
        self._listener = socket.create_server(('127.0.0.1', 0))
        self.port = self._listener.getsockname()[1]
        self.dead = False
        self.refuse = False
        self._sockets = [self._listener]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(self._target)
                self._sockets += [near, far]
                wire_dead = self.dead
                for source, target in ((near, far), (far, near)):
                    threading.Thread(
                        target=self._forward,
                        args=(source, target, wire_dead),
                        daemon=True,
                    ).start()

    def _forward(self, source, target, born_dead):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if self.dead == born_dead:
                    target.sendall(data)

    def close(self):
        for sock in self._sockets:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()


@pytest.mark.parametrize('way', ['tcp'])
def test_a_half_open_connection_is_noticed_and_replaced(serve, connect, addr, stack):
    settings = transport.Settings(heartbeat=0.2, patience=1.0)
    serve(options={'settings': settings}, f={'workfn': lambda x: x, 'once': True})
    cut = Cut(port_of(addr))
    stack.callback(cut.close)
    client = connect(addr=f'tcp://127.0.0.1:{cut.port}', settings=settings)
    assert client.call('f', 1).result(DEADLINE) == 1
    cut.dead = True  # Old connections swallow everything, new ones work.
    assert client.call('f', 2).result(DEADLINE) == 2


def test_a_stopped_server_is_waited_for(child, connect, addr):
    settings = transport.Settings(heartbeat=0.2, patience=0.6)
    server = child('server', addr)
    assert server.stdout.readline() == 'ready\n'
    client = connect(settings=settings)
    first = client.call('once', 1).result(DEADLINE)
    stop(server)
    future = client.call('once', 2)
    with pytest.raises(transport.Timeout):
        future.result(1.5)
    server.send_signal(signal.SIGCONT)
    assert (first['times'], future.result(DEADLINE)['times']) == (1, 1)


@pytest.mark.parametrize('way', ['tcp'])
def test_a_client_that_reaches_itself_is_not_connected(connect):
    """A socket that repeats everything stands for a port connected to itself."""
    with zmq.Context() as context, context.socket(zmq.ROUTER) as mirror:
        mirror.set(zmq.LINGER, 0)
        mirror.set(zmq.RCVTIMEO, int(1000 * DEADLINE))
        port = mirror.bind_to_random_port('tcp://127.0.0.1')
        client = connect(addr=f'tcp://127.0.0.1:{port}', wait=False)
        for _ in range(3):  # It disconnects each time, so the opening comes again.
            mirror.send_multipart(mirror.recv_multipart())
        assert not client.connected


def test_nothing_stays_open_after_closing(backend, addr):
    def descriptors():
        return len(os.listdir('/proc/self/fd'))

    def session():
        server = transport.Server(addr, transport=backend)
        server.bind('f', lambda x: x)
        with server, transport.Client(addr, transport=backend) as client:
            client.call('f', np.zeros(1_000_000, np.uint8)).result(DEADLINE)

    session()
    gc.collect()
    before = descriptors(), threading.active_count()
    for _ in range(5):
        session()
    gc.collect()
    assert (descriptors(), threading.active_count()) == before
