"""Connections of the dashboard: silent, trickling and deaf ones do not stay."""

import contextlib
import select
import socket
import time

import psutil
import pytest
from dashboards import dashboard
from sample_runs import make_run
from waiting import await_hang_up

from dreamerv3.dashboard.web.http_connection import MOST, READ_WITHIN, REQUEST_WITHIN

DEADLINE = 60.0
GROWTH = 32 * 2**20  # bytes
REQUEST = b'GET / HTTP/1.1\r\nhost: localhost\r\n'


@pytest.fixture(scope='module')
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp('home')
    make_run(folder / 'logdir' / 'run', 5)
    videos = folder / 'logdir' / 'run' / 'videos'
    videos.mkdir()
    (videos / 'large-1.mp4').write_bytes(bytes(64 * 2**20))
    return folder


@pytest.fixture(scope='module')
def server(home):
    with dashboard(home / 'logdir') as server:
        server.wait_until(lambda known: len(known) == 1)
        yield server


def connect(server, words=b''):
    sock = socket.create_connection(('127.0.0.1', server.port), DEADLINE)
    with contextlib.suppress(ConnectionError):
        sock.sendall(words)
    return sock


UNFINISHED = [
    b'',
    b'GET / HT',
    REQUEST,  # without the empty line
    REQUEST + b'\r\n',  # an answer, and then nothing
    REQUEST + b'\r\n' + REQUEST,  # the same, and half a request
    REQUEST + b'content-length: 100\r\n\r\nx',  # half a body
]


def test_a_change_that_does_not_arrive_is_given_up(server):
    (run,) = server.json('/api/options')['runs']
    head = (
        f'PUT /api/runs/{run}/label HTTP/1.1\r\nhost: localhost\r\n'
        'origin: http://localhost\r\ncontent-type: application/json\r\n'
        'content-length: 100\r\n\r\n{'
    )
    with connect(server, head.encode()) as sock:
        assert sock.recv(4096).startswith(b'HTTP/1.1 408')
        assert await_hang_up(sock)


def test_connections_without_a_whole_request_are_closed(server):
    begin = time.monotonic()
    with contextlib.ExitStack() as stack:
        socks = [stack.enter_context(connect(server, x)) for x in UNFINISHED]
        assert all(map(await_hang_up, socks))
    assert time.monotonic() - begin < REQUEST_WITHIN + 15


@pytest.mark.long
def test_trickling_does_not_prolong_a_request(server):
    begin = time.monotonic()
    with connect(server, REQUEST) as sock:
        sock.settimeout(0.2)
        while True:  # a byte each time that nothing comes
            try:
                if not sock.recv(2**16):
                    break
            except TimeoutError:
                with contextlib.suppress(BrokenPipeError):
                    sock.sendall(b'x')
            except ConnectionError:
                break
    assert time.monotonic() - begin < REQUEST_WITHIN + 15


def test_many_silent_connections_are_bounded_and_others_are_served(server):
    process = psutil.Process(server.process.pid)
    before, files = process.memory_info().rss, process.num_fds()
    with contextlib.ExitStack() as stack:
        socks = [stack.enter_context(connect(server)) for _ in range(900)]
        for _ in range(5):
            assert server.get('/')[0] == 200
        assert process.num_fds() <= files + MOST + 10
        assert process.memory_info().rss - before < GROWTH
        assert all(map(await_hang_up, socks))
    assert process.num_fds() <= files + 10
    assert server.get('/')[0] == 200


@pytest.mark.long
def test_streams_of_changes_stay_open_beyond_the_deadline_of_requests(server):
    with server.changes() as messages:
        next(messages)
        sock = connect(server)
        assert await_hang_up(sock)  # which takes that long
        sock.close()
        with socket.create_connection(('127.0.0.1', server.port)) as other:
            other.sendall(REQUEST.replace(b'/ ', b'/api/changes ', 1) + b'\r\n')
            assert other.recv(15) == b'HTTP/1.1 200 OK'


@pytest.mark.long
def test_who_does_not_read_an_answer_is_hung_up_on(server):
    (run,) = server.wait_until(lambda known: len(known) == 1).values()
    path = f'/api/runs/{run["id"]}/videos/large-1.mp4'.encode()
    with connect(server, REQUEST.replace(b'/ ', path + b' ', 1) + b'\r\n') as sock:
        assert sock.recv(15) == b'HTTP/1.1 200 OK'
        poller = select.poll()
        poller.register(sock, select.POLLRDHUP)
        assert poller.poll(1000 * (READ_WITHIN + 30))  # without reading
        with pytest.raises(ConnectionResetError):
            while sock.recv(2**20):
                pass
    assert server.get('/')[0] == 200
