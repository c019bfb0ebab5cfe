"""Networks need keys; wrong keys get no answer."""

import json
import logging
import os
import stat

import internals
import numpy as np
import pytest
from raw_client import answer, raw_client, send_opening

from embodied import transport
from embodied.core.errors import ConfigError
from embodied.transport import keys
from embodied.transport.codec import frames as wire
from embodied.transport.codec.encoding import pack

DEADLINE = 60.0
SHORT = 0.5


@pytest.fixture
def addr():
    return f'localhost:{transport.free_port()}'


@pytest.fixture
def ours(tmp_path):
    return keys.create(tmp_path / 'ours')


@pytest.fixture
def theirs(tmp_path):
    return keys.create(tmp_path / 'theirs')


def everywhere():
    return f'0.0.0.0:{transport.free_port()}'


def direct(addr):
    return f'tcp://127.0.0.1:{addr.rpartition(":")[2]}'


def local(addr):
    return f'localhost:{addr.rpartition(":")[2]}'


def start(stack, addr, **options):
    server = transport.Server(addr, **options)
    server.bind('f', lambda x: x)
    return stack.enter_context(server)


@pytest.mark.parametrize('host', ['0.0.0.0', '10.1.2.3', 'example.org', '::'])
def test_networks_are_refused_without_keys(backend, host):
    with pytest.raises(ConfigError, match='keys|localhost'):
        transport.Server(f'[{host}]:7000', transport=backend)
    with pytest.raises(ConfigError, match='keys|localhost'):
        transport.Client(f'[{host}]:7000', transport=backend)


def test_portal_refuses_keys_since_it_cannot_use_them(ours, addr):
    with pytest.raises(ConfigError, match='portal|Portal'):
        transport.Server(addr, transport='portal', keys=ours.server)


@pytest.mark.parametrize('encrypt', [True, False])
@pytest.mark.parametrize('path', [direct, local])
def test_members_of_the_run_get_in(stack, connect, ours, encrypt, path):
    addr = everywhere()
    start(stack, addr, keys=ours.server, encrypt=encrypt)
    client = connect(addr=path(addr), keys=ours.client, encrypt=encrypt)
    array = np.arange(100_000)
    np.testing.assert_array_equal(client.call('f', array).result(DEADLINE), array)


@pytest.mark.parametrize('encrypt', [True, False])
@pytest.mark.parametrize('path', [direct, local])
def test_a_wrong_key_gets_no_answer_and_is_logged_once(
    stack, connect, ours, theirs, encrypt, path, caplog
):
    addr = everywhere()
    server = start(stack, addr, keys=ours.server, encrypt=encrypt)
    # The worst case: they know our public key.
    intruder = keys.ClientKeys(
        theirs.client.public, theirs.client.secret, 'guess', ours.server.public
    )
    with caplog.at_level(logging.WARNING, 'embodied.transport.security'):
        for _ in range(3):
            client = connect(
                addr=path(addr), keys=intruder, encrypt=encrypt, wait=False
            )
            with pytest.raises(transport.Timeout):
                client.connect(SHORT)
        friend = connect(addr=path(addr), keys=ours.client, encrypt=encrypt)
        assert friend.call('f', 1).result(DEADLINE) == 1
    refused = [r for r in caplog.records if 'refused' in r.getMessage()]
    assert len(refused) == 1
    assert internals.clients(server) == 1


def test_a_client_without_keys_is_refused_with_what_to_do(stack, connect, ours):
    addr = everywhere()
    start(stack, addr, keys=ours.server)
    client = connect(addr=local(addr), wait=False)
    with pytest.raises(transport.Refused, match='keys'):
        client.connect(DEADLINE)


def test_a_server_without_the_token_is_not_trusted(stack, connect, ours, theirs, addr):
    liar = keys.ServerKeys(ours.server.public, ours.server.secret, 'guess')
    start(stack, addr, keys=liar)
    client = connect(keys=ours.client, wait=False)
    with pytest.raises((transport.Refused, transport.Timeout)):
        client.connect(SHORT)
    assert not client.connected


def test_a_wrong_server_key_never_connects(stack, connect, ours, theirs):
    addr = everywhere()
    start(stack, addr, keys=theirs.server)
    client = connect(addr=direct(addr), keys=ours.client, wait=False)
    with pytest.raises(transport.Timeout):
        client.connect(SHORT)


def test_bare_sockets_cannot_call_without_proof(stack, ours):
    addr = everywhere()
    start(stack, addr, keys=ours.server, encrypt=False)
    with raw_client(direct(addr)) as sock:
        sock.send_multipart(pack(wire.Kind.REQUEST, (1,), 1, b'f').frames())
        assert answer(sock).kind == wire.Kind.UNKNOWN
        assert send_opening(sock).kind == wire.Kind.CHALLENGE


def test_unencrypted_networks_are_warned_about(ours, caplog):
    with caplog.at_level(logging.WARNING):
        transport.Server(everywhere(), keys=ours.server, encrypt=False)
    assert 'not encrypted' in caplog.text


def test_local_servers_need_no_keys(serve, connect):
    serve(f=lambda: 1)
    assert connect().call('f').result(DEADLINE) == 1


def test_keys_are_written_for_the_owner_only(tmp_path, capsys):
    folder = tmp_path / 'logdir' / 'keys'
    assert keys.main([str(folder)]) == 0
    assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
    for name in ('server.json', 'client.json'):
        assert stat.S_IMODE(os.stat(folder / name).st_mode) == 0o600
    assert 'client.json' in capsys.readouterr().out
    loaded = keys.load(folder, {})
    assert loaded.server.allowed == (loaded.client.public,)
    assert loaded.client.server == loaded.server.public
    assert loaded.server.secret not in repr(loaded)
    assert loaded.server.token not in repr(loaded)


def test_keys_come_from_the_environment_too(tmp_path, capsys):
    created = keys.create(tmp_path)
    keys.main([str(tmp_path), '--export'])
    environ = {'DREAMER_KEYS': capsys.readouterr().out}
    assert keys.load('nowhere', environ) == created
    client_only = json.dumps({'client': json.loads(environ['DREAMER_KEYS'])['client']})
    assert keys.load('', {'DREAMER_KEYS': client_only}) == keys.Keys(
        None, created.client
    )


def test_wrong_uses_of_keys_are_named(tmp_path):
    with pytest.raises(ConfigError, match='No keys in'):
        keys.load(tmp_path, {})
    keys.create(tmp_path)
    with pytest.raises(ConfigError, match='already holds'):
        keys.create(tmp_path)
    with pytest.raises(ConfigError, match='cannot be read'):
        keys.load(tmp_path, {'DREAMER_KEYS': 'nonsense'})
    os.chmod(tmp_path / 'client.json', 0o644)
    with pytest.raises(ConfigError, match='chmod 600'):
        keys.load(tmp_path, {})
