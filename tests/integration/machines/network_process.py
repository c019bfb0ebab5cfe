"""A server or a client of a host of its own, which prints what it sees."""

import contextlib
import socket
import sys

import zmq

from embodied import transport
from embodied.transport import keys

SILENCE = 0.3  # seconds without an answer that count as none
DEADLINE = 30.0


def server(addr, folder='', secret='the secret'):
    """Serves a secret until it is killed."""
    options = {'keys': keys.load(folder, {}).server} if folder else {}
    serving = transport.Server(addr, 'server', **options)
    serving.bind('secret', lambda: secret)
    serving.start(block=False)
    print('ready', flush=True)
    serving.wait()


def client(addr, folder, deadline=DEADLINE):
    """Asks for the secret with the keys of a folder."""
    half = keys.load(folder, {}).client
    with transport.Client(addr, 'client', keys=half) as asking:
        try:
            asking.connect(float(deadline))
            print(asking.call('secret').result(DEADLINE))
        except transport.TransportError as error:
            print(type(error).__name__)


def asker(addr, folder):
    """Asks again for every line of its input, with one client."""
    half = keys.load(folder, {}).client
    with transport.Client(addr, 'client', keys=half) as asking:
        for _ in sys.stdin:
            print(asking.call('secret').result(DEADLINE), flush=True)


def probe(host, port):
    """Looks for anything that answers there: TCP, bare ZeroMQ, the Unix socket."""
    print(tcp(host, int(port)), bare(host, port), unix(port))


def tcp(host, port):
    try:
        with socket.create_connection((host, port), DEADLINE) as sock:
            sock.settimeout(SILENCE)
            with contextlib.suppress(TimeoutError):
                return f'open:{len(sock.recv(1024)) > 0}'
            return 'open:silent'
    except OSError as error:
        return type(error).__name__


def bare(host, port):
    """Whether a message that is sent without a key is answered."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as sock:
        sock.linger = 0
        sock.connect(f'tcp://{host}:{port}')
        sock.send(b'let me in')
        return 'answer' if sock.poll(1000 * SILENCE) else 'none'


def unix(port):
    with socket.socket(socket.AF_UNIX) as sock:
        try:
            sock.connect(f'\0dreamer-{port}')
        except OSError as error:
            return type(error).__name__
        return 'open'


if __name__ == '__main__':
    globals()[sys.argv[1]](*sys.argv[2:])
