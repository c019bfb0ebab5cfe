"""Addresses are read as people write them, and free ports are safe to connect to."""

import socket

import pytest

from embodied import transport
from embodied.core.errors import ConfigError
from embodied.transport import addresses


@pytest.mark.parametrize(
    'text, host, port, loopback, direct',
    [
        (7000, 'localhost', 7000, True, False),
        ('7000', 'localhost', 7000, True, False),
        (':7000', 'localhost', 7000, True, False),
        ('localhost:7000', 'localhost', 7000, True, False),
        ('127.0.0.5:7000', '127.0.0.5', 7000, True, False),
        ('[::1]:7000', '::1', 7000, True, False),
        ('tcp://127.0.0.1:7000', '127.0.0.1', 7000, True, True),
        ('0.0.0.0:7000', '0.0.0.0', 7000, False, False),
        ('*:7000', '0.0.0.0', 7000, False, False),
        ('node-3.cluster:7000', 'node-3.cluster', 7000, False, False),
    ],
    ids=str,
)
def test_addresses_are_read(text, host, port, loopback, direct):
    address = addresses.parse(text)
    assert address == (host, port, direct)
    assert address.loopback == loopback


@pytest.mark.skipif(not addresses.has_unix(), reason='everything is TCP here')
@pytest.mark.parametrize(
    'text, local',
    [
        ('localhost:7000', True),
        ('127.0.0.5:7000', True),
        ('tcp://localhost:7000', False),
        ('0.0.0.0:7000', False),
    ],
)
def test_loopback_means_processes_on_this_host_unless_tcp_is_named(text, local):
    address = addresses.parse(text)
    assert address.local == local
    assert address.unix == '\0dreamer-7000'


@pytest.mark.parametrize('text', ['', 'host', 'host:', 'host:99999', 'host:0', 'a/b:1'])
def test_anything_else_is_refused(text):
    with pytest.raises(ConfigError, match='is not an address'):
        addresses.parse(text)


def test_free_ports_are_outside_of_the_ephemeral_range():
    low, high = addresses._ephemeral_range()
    for _ in range(50):
        port = addresses.free_port()
        assert not low <= port <= high
        with socket.create_server(('127.0.0.1', port)):
            pass


def test_names_become_numbers_before_listening():
    assert addresses.parse('localhost:7000').resolved().tcp == 'tcp://127.0.0.1:7000'
    assert addresses.parse('0.0.0.0:7000').resolved().tcp == 'tcp://0.0.0.0:7000'
    with pytest.raises(ConfigError, match="host 'no-such-host.invalid' is unknown"):
        addresses.parse('no-such-host.invalid:7000').resolved()


def test_ipv6_endpoints_are_bracketed():
    assert addresses.parse('[::1]:7000').tcp == 'tcp://[::1]:7000'


def has_ipv6():
    try:
        with socket.create_server(('::1', 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


@pytest.mark.skipif(not has_ipv6(), reason='needs IPv6 on the loopback interface')
@pytest.mark.parametrize('text', ['[::1]:{}', 'tcp://[::1]:{}', 'tcp://::1:{}'])
def test_servers_are_reached_over_ipv6(text):
    addr = text.format(addresses.free_port())
    server = transport.Server(addr)
    server.bind('echo', lambda x: x)
    with server, transport.Client(addr) as client:
        assert client.call('echo', 3).result(timeout=60) == 3


@pytest.mark.skipif(not has_ipv6(), reason='needs IPv6 on the loopback interface')
def test_ports_taken_over_ipv6_are_named():
    with socket.create_server(('::1', 0), family=socket.AF_INET6) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(transport.AddressInUse, match=f'::1.*{port}'):
            transport.Server(f'tcp://[::1]:{port}').start(block=False)
