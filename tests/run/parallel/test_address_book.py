"""Servers are found by names, also after they have moved."""

import threading

import pytest

from embodied import transport
from embodied.run.parallel import address_book
from embodied.run.parallel.address_book import AddressBook

SECONDS = 60.0  # only against a test that hangs


@pytest.fixture
def servers():
    """Two servers, each of which returns its address."""
    addrs = [f'localhost:{transport.free_port()}' for _ in range(2)]
    servers = {addr: transport.Server(addr) for addr in addrs}
    for addr, server in servers.items():
        server.bind('where', lambda addr=addr: addr)
        server.start(block=False)
    yield servers
    for server in servers.values():
        server.close()


@pytest.fixture
def places():
    """Addresses by name, as the service knows them."""
    return {}


@pytest.fixture
def book(places):
    with address_book.serve(places.__getitem__) as environ:
        yield AddressBook.of(environ)


def test_names_stand_for_addresses_and_addresses_for_themselves(book, places):
    places['replay'] = 'localhost:7000'
    assert book.is_name('replay') and book.find('replay') == 'localhost:7000'
    for addr in ('localhost:7001', '7001', ':7001', '[::1]:7001', 'tcp://h:1'):
        assert not book.is_name(addr)
        assert book.resolver(addr) == book.find(addr) == addr


def test_without_a_service_there_are_no_names():
    book = AddressBook.of({})
    assert not book.is_name('replay')
    assert book.find('replay') == 'replay'


def test_clients_follow_a_server_that_moves(book, places, servers):
    first, second = servers
    places['replay'] = first
    with transport.Client(book.resolver('replay')) as client:
        assert client.call('where').result(SECONDS) == first
        places['replay'] = second
        servers[first].close()
        assert client.call('where').result(SECONDS) == second


def test_a_name_that_is_not_known_yet_is_waited_for(servers):
    first, _ = servers
    known = threading.Event()
    find = lambda name: (known.wait(SECONDS), first)[1]
    with address_book.serve(find) as environ:
        book = AddressBook.of(environ)
        with transport.Client(book.resolver('replay')) as client:
            with pytest.raises(transport.Timeout):
                client.connect(0.2)
            known.set()
            assert client.call('where').result(SECONDS) == first
