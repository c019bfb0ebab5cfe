"""Security: which addresses need keys, and the authenticator that checks them."""

import logging
from collections.abc import Iterable

import zmq
from zmq.utils import z85

from embodied.core.errors import ConfigError

from .addresses import Address
from .keys import ClientKeys, ServerKeys
from .wires import zmq_sockets

__all__ = [
    'CurveAuthenticator',
    'WarnOnce',
    'encrypt_client',
    'encrypt_server',
    'require_keys',
]

log = logging.getLogger(__name__)

ZAP_ENDPOINT = 'inproc://zeromq.zap.01'
MAX_LOGGED = 1000


class WarnOnce:
    """Logs one warning per subject, however often there is a reason."""

    def __init__(self) -> None:
        self._subjects: set[str] = set()

    def warn(self, subject: str, message: str) -> None:
        if subject not in self._subjects and len(self._subjects) < MAX_LOGGED:
            self._subjects.add(subject)
            log.warning('%s: %s', subject, message)


class CurveAuthenticator:
    """Answers ZeroMQ's question whether the holder of a public key may connect."""

    def __init__(
        self, context: zmq.Context, allowed: Iterable[str], warnings: WarnOnce
    ) -> None:
        self._allowed = {z85.decode(key.encode()) for key in allowed}
        self._warnings = warnings
        self.sock = context.socket(zmq.REP)
        self.sock.set(zmq.LINGER, 0)
        self.sock.bind(ZAP_ENDPOINT)

    def answer(self, events: int = 0) -> None:
        """Answers all requests that have arrived."""
        while zmq_sockets.readable(self.sock):
            self._answer_one()

    def _answer_one(self) -> None:
        version, request, _, address, _, mechanism, *credentials = (
            self.sock.recv_multipart()
        )
        known = mechanism == b'CURVE' and credentials[:1][0] in self._allowed
        if not known:
            self._warnings.warn(address.decode(), 'refused, its key is not accepted.')
        status = [b'200', b'OK'] if known else [b'400', b'Unknown key']
        self.sock.send_multipart([version, request, *status, b'', b''])


def require_keys(
    address: Address, keys: ServerKeys | ClientKeys | None, encrypt: bool
) -> None:
    """Refuses a network address without keys; warns when it is not encrypted."""
    if address.loopback:
        return
    if keys is None:
        raise ConfigError(
            f'{address.host}:{address.port} is reachable from other machines, which '
            f'needs keys. Create them with `dreamer keys LOGDIR/keys`, or use '
            f'localhost.'
        )
    if not encrypt:
        log.warning(
            'Traffic of %s:%s is authenticated but not encrypted: it can be read by '
            'everything on this network.',
            address.host,
            address.port,
        )


def encrypt_server(sock: zmq.Socket, keys: ServerKeys) -> None:
    """Lets endpoints bound from now on speak CURVE only."""
    sock.set(zmq.CURVE_SERVER, 1)
    sock.set(zmq.CURVE_PUBLICKEY, keys.public.encode())
    sock.set(zmq.CURVE_SECRETKEY, keys.secret.encode())


def encrypt_client(sock: zmq.Socket, keys: ClientKeys) -> None:
    """Lets connections made from now on speak CURVE with this server only."""
    sock.set(zmq.CURVE_SERVERKEY, keys.server.encode())
    sock.set(zmq.CURVE_PUBLICKEY, keys.public.encode())
    sock.set(zmq.CURVE_SECRETKEY, keys.secret.encode())
