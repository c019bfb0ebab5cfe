"""Clients that ask for the address of their server before they connect."""

import queue
import threading
import time

import internals
import pytest
from raw_client import stop

from embodied import transport
from embodied.core.errors import ConfigError
from embodied.transport import keys

DEADLINE = 60.0  # seconds; only against tests that hang
HOSTS = {'unix': 'localhost', 'tcp': 'tcp://127.0.0.1'}


class Resolver:
    """Returns or raises what it is given, and counts how often it is asked."""

    def __init__(self, answer=None):
        self.answer = answer
        self.asked = queue.SimpleQueue()

    def __call__(self):
        self.asked.put(True)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer() if callable(self.answer) else self.answer

    def await_asked(self, times=1):
        for _ in range(times):
            self.asked.get(timeout=DEADLINE)


def elsewhere(way):
    return f'{HOSTS[way]}:{transport.free_port()}'


def start(stack, addr, **methods):
    server = transport.Server(addr)
    for name, method in methods.items():
        server.bind(name, method)
    return stack.enter_context(server)


def test_a_client_follows_its_server_and_asks_again(stack, addr, connect, way):
    heard, never = threading.Event(), threading.Event()
    stack.callback(never.set)

    def swallow(value):
        heard.set()
        never.wait()

    first = start(stack, addr, ask=swallow)
    resolver = Resolver(addr)
    client = connect(addr=resolver)
    future = client.call('ask', 3)
    assert heard.wait(DEADLINE)
    resolver.answer = elsewhere(way)
    start(stack, resolver.answer, ask=lambda value: value + 1)
    never.set()
    first.close()
    assert client.call('ask', 5).result(DEADLINE) == 6
    assert future.result(DEADLINE) in (None, 4)  # The first may just have answered.


def test_a_server_that_was_killed_is_found_at_its_new_address(
    stack, addr, child, connect, way
):
    process = child('server', addr)
    assert process.stdout.readline() == 'ready\n'
    resolver = Resolver(addr)
    client = connect(addr=resolver)
    stop(process)
    future = client.call('echo', 3)
    resolver.answer = elsewhere(way)
    start(stack, resolver.answer, echo=lambda value: value + 1)
    process.kill()
    process.wait()
    assert future.result(DEADLINE) == 4


def test_a_client_finds_a_server_that_is_started_late_and_elsewhere(
    stack, addr, connect, way
):
    resolver = Resolver(addr)
    client = connect(wait=False, addr=resolver)
    future = client.call('ask', 1)
    resolver.await_asked(3)  # No server is there.
    resolver.answer = elsewhere(way)
    start(stack, resolver.answer, ask=lambda value: -value)
    assert future.result(DEADLINE) == -1


@pytest.mark.parametrize(('before', 'after'), [('unix', 'tcp'), ('tcp', 'unix')])
def test_a_server_may_move_between_this_host_and_the_network(
    stack, connect, before, after
):
    resolver = Resolver(elsewhere(before))
    first = start(stack, resolver.answer, where=lambda: before)
    client = connect(addr=resolver)
    assert client.call('where').result(DEADLINE) == before
    resolver.answer = elsewhere(after)
    start(stack, resolver.answer, where=lambda: after)
    first.close()
    assert client.call('where').result(DEADLINE) == after


def test_a_failing_resolver_is_asked_again_and_reported_once(
    stack, addr, connect, caplog
):
    resolver = Resolver(LookupError('no server is registered'))
    client = connect(wait=False, addr=resolver)
    resolver.await_asked(3)
    with pytest.raises(transport.Timeout, match='an unknown address'):
        client.connect(0.1)
    resolver.answer = addr
    start(stack, addr, f=lambda: 1)
    assert client.call('f').result(DEADLINE) == 1
    assert caplog.text.count('LookupError: no server is registered') == 1


def test_a_resolver_that_blocks_holds_up_no_deadline_and_no_close(stack, addr, way):
    release = threading.Event()
    stack.callback(release.set)
    resolver = Resolver(lambda: (release.wait(), addr)[1])
    client = transport.Client(resolver, timeout=0.2)
    with pytest.raises(transport.Timeout):
        client.call('f').result(DEADLINE)
    begin = time.monotonic()
    client.close()
    assert time.monotonic() - begin < DEADLINE / 2


def test_while_the_resolver_blocks_the_last_address_is_tried(stack, addr, connect):
    release = threading.Event()
    stack.callback(release.set)
    start(stack, addr, f=lambda: 1)
    resolver = Resolver(addr)
    settings = transport.Settings(patience=0.2)
    client = connect(addr=resolver, settings=settings)
    assert client.call('f').result(DEADLINE) == 1
    resolver.answer = lambda: (release.wait(), addr)[1]
    internals.disconnect(client)
    resolver.await_asked(2)
    assert client.call('f').result(DEADLINE) == 1


def test_an_open_connection_does_not_depend_on_the_resolver(stack, addr, connect):
    start(stack, addr, f=lambda: 1)
    resolver = Resolver(addr)
    client = connect(addr=resolver)
    resolver.answer = LookupError('gone')
    for _ in range(100):
        assert client.call('f').result(DEADLINE) == 1
    assert resolver.asked.qsize() == 1


def test_an_address_on_the_network_needs_keys_when_it_is_found(stack, tmp_path):
    ours = keys.create(tmp_path)
    addr = f'0.0.0.0:{transport.free_port()}'
    server = transport.Server(addr, keys=ours.server)
    server.bind('f', lambda: 1)
    stack.enter_context(server)
    resolver = Resolver(addr)
    with (
        transport.Client(resolver) as client,
        pytest.raises(ConfigError, match='needs keys'),
    ):
        client.connect(DEADLINE)
    with transport.Client(resolver, keys=ours.client) as client:
        assert client.call('f').result(DEADLINE) == 1


def test_portal_needs_a_fixed_address():
    with pytest.raises(ConfigError, match='fixed address'):
        transport.Client(Resolver('localhost:7000'), transport='portal')
