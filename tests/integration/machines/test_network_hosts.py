"""Which clients are served over a network, and how servers are found in it."""

import subprocess
from pathlib import Path

import hosts as hosts_lib
import pytest

from embodied.transport import keys

PROCESS = Path(__file__).with_name('network_process.py')
PORT = 7000
REFUSED = 'ConnectionRefusedError'
SHORT = '1'  # seconds; a good key takes a tenth of that
SECRET = 'the secret'

reason = hosts_lib.missing()
pytestmark = pytest.mark.skipif(bool(reason), reason=reason or 'possible')


@pytest.fixture(scope='module')
def hosts():
    with hosts_lib.Hosts('server', 'other') as hosts:
        yield hosts


@pytest.fixture
def serve(hosts):
    """Starts a server on its host, for the time of a test."""
    started = []

    def serve(*args, host='server'):
        command = [PROCESS, 'server', *args]
        server = hosts.start(host, command, stdout=subprocess.PIPE)
        started.append(server)
        assert server.stdout.readline() == 'ready\n'
        return server

    yield serve
    for server in started:
        server.kill()
        server.wait()


def ask(hosts, where, *args):
    """What a process on a host prints."""
    process = hosts.start(where, [PROCESS, *args], stdout=subprocess.PIPE)
    return process.communicate(timeout=60)[0].strip()


@pytest.mark.parametrize('addr', [f'localhost:{PORT}', f'tcp://localhost:{PORT}'])
def test_without_a_key_nothing_outside_of_loopback_is_served(hosts, serve, addr):
    serve(addr)
    there = hosts.address('server')
    # Nothing listens there, and Unix sockets do not reach beyond their host.
    assert ask(hosts, 'net', 'probe', there, PORT) == f'{REFUSED} none {REFUSED}'
    nearby = ask(hosts, 'server', 'probe', '127.0.0.1', PORT).split()
    assert nearby[2] == 'open'  # so the probe finds what is served
    assert (nearby[0] == REFUSED) == (not addr.startswith('tcp'))


def test_without_a_key_no_server_starts_outside_of_loopback(hosts):
    for host in (hosts.address('server'), '0.0.0.0', '[::]'):
        command = [PROCESS, 'server', f'{host}:{PORT}']
        pipes = {'stdout': subprocess.PIPE, 'stderr': subprocess.PIPE}
        server = hosts.start('server', command, **pipes)
        out, err = server.communicate(timeout=60)
        assert out == '' and 'which needs keys' in err


def test_with_a_wrong_key_nothing_is_served(hosts, serve, tmp_path):
    for name in ('ours', 'theirs'):
        keys.create(tmp_path / name)
    address = f'[{hosts.address("server", version=6)}]:{PORT}'
    serve(address, tmp_path / 'ours')
    assert ask(hosts, 'net', 'client', address, tmp_path / 'ours') == SECRET
    wrong = ask(hosts, 'net', 'client', address, tmp_path / 'theirs', SHORT)
    assert wrong == 'Timeout'


def test_an_intruder_with_the_public_key_gets_nothing(hosts, serve, tmp_path):
    ours = keys.create(tmp_path / 'ours')
    theirs = keys.create(tmp_path / 'theirs')
    serve(f'0.0.0.0:{PORT}', tmp_path / 'ours')
    # The worst case: they may even know the token, but have no listed key.
    text = (tmp_path / 'theirs' / 'client.json').read_text()
    text = text.replace(theirs.client.server, ours.client.server)
    text = text.replace(theirs.client.token, ours.client.token)
    (tmp_path / 'theirs' / 'client.json').write_text(text)
    address = f'{hosts.address("server")}:{PORT}'
    assert ask(hosts, 'net', 'client', address, tmp_path / 'theirs', SHORT) == 'Timeout'
    # ZeroMQ sends a greeting to every connection, and nothing more without a key.
    there = hosts.address('server')
    assert ask(hosts, 'net', 'probe', there, PORT) == f'open:True none {REFUSED}'
    assert ask(hosts, 'net', 'client', address, tmp_path / 'ours') == SECRET


@pytest.mark.parametrize('version', [4, 6])
def test_a_server_that_moves_is_found_again_by_its_name(
    hosts, serve, tmp_path, version
):
    keys.create(tmp_path)
    hosts.name('net', replay=hosts.address('server', version))
    for host in ('server', 'other'):  # Servers, too, may be given a name to listen at.
        hosts.name(host, **{'replay-here': hosts.address(host, version)})
    first = serve(f'replay-here:{PORT}', tmp_path, 'first', host='server')
    pipes = {'stdin': subprocess.PIPE, 'stdout': subprocess.PIPE}
    asker = hosts.start('net', [PROCESS, 'asker', f'replay:{PORT}', tmp_path], **pipes)

    def ask():
        asker.stdin.write('\n')
        asker.stdin.flush()
        return asker.stdout.readline()

    assert ask() == 'first\n'
    first.kill()
    first.wait()
    hosts.name('net', replay=hosts.address('other', version))
    serve(f'replay-here:{PORT}', tmp_path, 'second', host='other')
    assert ask() == 'second\n'
    asker.stdin.close()
    assert asker.wait(60) == 0
