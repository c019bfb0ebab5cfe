"""Servers that come back at another address."""

import threading

import pytest

from embodied import transport
from embodied.core.errors import ConfigError

DEADLINE = 60.0  # seconds; only against tests that hang
HOSTS = {'unix': 'localhost', 'tcp': 'tcp://127.0.0.1'}


def elsewhere(way):
    return f'{HOSTS[way]}:{transport.free_port()}'


def start(stack, addr, **methods):
    server = transport.Server(addr)
    for name, method in methods.items():
        server.bind(name, method)
    return stack.enter_context(server)


def test_a_client_follows_its_server_and_asks_again(stack, serve, connect, way):
    heard, never = threading.Event(), threading.Event()
    stack.callback(never.set)

    def swallow(value):
        heard.set()
        never.wait()

    serve(ask=swallow)
    client = connect()
    future = client.call('ask', 3)
    assert heard.wait(DEADLINE)
    addr = elsewhere(way)
    start(stack, addr, ask=lambda value: value + 1)
    client.move(addr)
    assert future.result(DEADLINE) == 4
    assert client.call('ask', 5).result(DEADLINE) == 6


def test_a_client_moves_before_anybody_has_answered(stack, connect, way):
    client = connect(wait=False)
    future = client.call('ask', 1)
    addr = elsewhere(way)
    client.move(addr)
    start(stack, addr, ask=lambda value: -value)
    assert future.result(DEADLINE) == -1


def test_a_client_of_this_machine_does_not_move_to_the_network(connect, addr, way):
    client = connect(wait=False)
    with pytest.raises(ConfigError, match='cannot move'):
        client.move(elsewhere('tcp' if way == 'unix' else 'unix'))
