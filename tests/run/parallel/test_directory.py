"""Clients that are told where their servers have moved to."""

import pytest

from embodied import transport
from embodied.run.parallel.address_book import AddressBook, Places

SECONDS = 60.0  # only against a test that hangs


@pytest.fixture
def servers():
    """Two servers, each of which tells its address."""
    addrs = [f'localhost:{transport.free_port()}' for _ in range(2)]
    servers = [transport.Server(addr) for addr in addrs]
    for server, addr in zip(servers, addrs, strict=True):
        server.bind('where', lambda addr=addr: addr)
        server.start(block=False)
    yield addrs
    for server in servers:
        server.close()


def connect(directory, name):
    return directory.connect(name, transport.Client)


def test_names_stand_for_addresses_and_all_others_for_themselves(servers):
    directory = AddressBook()
    directory.update(Places(1, {'replay': servers[0]}))
    assert directory.find('replay') == servers[0]
    assert directory.find('localhost:7000') == 'localhost:7000'


def test_clients_follow_a_server_that_moves(servers):
    directory = AddressBook()
    directory.update(Places(1, {'replay': servers[0]}))
    with connect(directory, 'replay') as early:
        assert early.call('where').result(SECONDS) == servers[0]
        directory.update(Places(2, {'replay': servers[1]}))
        with connect(directory, 'replay') as late:
            for client in (early, late):
                assert client.call('where').result(SECONDS) == servers[1]


def test_news_that_come_late_are_old(servers):
    directory = AddressBook()
    directory.update(Places(2, {'replay': servers[1]}))
    with connect(directory, 'replay') as client:
        directory.update(Places(1, {'replay': servers[0]}))
        assert client.call('where').result(SECONDS) == servers[1]
