"""Handshake, client side: declares what the client is and checks the answer."""

import hmac
import secrets
from typing import Any

from . import handshake_identity as hello
from .codec.encoding import pack, unpack_value
from .codec.frames import Kind, Message
from .codec.shared_memory import Probe, supported
from .errors import MessageError, Refused
from .interface import Settings
from .keys import ClientKeys

__all__ = ['ClientHandshake', 'Accepted']

NONCE_BYTES = 16


class Accepted:
    """What the server said about itself and about slabs when it let us in."""

    def __init__(self, words: dict, use_slabs: bool) -> None:
        self.server = str(words.get('server', ''))
        probe = words.get('probe')
        self.server_maps_ours = use_slabs and words.get('slabs') is True
        self.server_pid: int | None = None  # where we can map its slabs
        if use_slabs and isinstance(probe, dict):
            self.server_pid = Probe.pid_if_mappable(probe)


class ClientHandshake:
    """The client's side of a hello. Answers to earlier hellos do not count."""

    def __init__(
        self,
        name: str,
        session: bytes,
        identity: hello.Identity | None,
        keys: ClientKeys | None,
        settings: Settings,
    ) -> None:
        self._keys = keys
        self._probe = Probe() if supported() and settings.slab_bytes else None
        self._words: dict[str, Any] = {
            'name': name,
            'session': session,
            'identity': (identity or hello.Identity()).plain(),
            'probe': self._probe and self._probe.words(),
        }
        self._nonce = b''

    def close(self) -> None:
        if self._probe is not None:
            self._probe.close()

    def hello(self) -> Message:
        """Begins anew."""
        self._nonce = secrets.token_bytes(NONCE_BYTES)
        return pack(Kind.HELLO, {**self._words, 'nonce': self._nonce})

    def prove(self, parcel: Message) -> Message | None:
        """The answer to a challenge, if it is about our hello."""
        words = self._read(parcel)
        if words is None:
            return None
        if self._keys is None:
            raise Refused(
                'The server asks for the keys of its run and we have none. Give the '
                'client the folder with client.json, or set DREAMER_KEYS.'
            )
        challenge = words.get('challenge')
        if not isinstance(challenge, bytes):
            raise MessageError('A challenge without its bytes.')
        proof = hello.prove(self._keys.token, 'client', challenge)
        return pack(Kind.HELLO, {**self._words, 'nonce': self._nonce, 'proof': proof})

    def welcome(self, parcel: Message) -> Accepted | None:
        """Checks a welcome; None when it is about an earlier hello."""
        words = self._read(parcel)
        if words is None:
            return None
        if self._keys is not None:
            expected = hello.prove(self._keys.token, 'server', self._nonce)
            if not hmac.compare_digest(words.get('proof') or b'', expected):
                raise Refused(
                    'The server does not hold the token of our run. Check the address '
                    'and that both sides use the same keys.'
                )
        return Accepted(words, self._probe is not None)

    def refusal(self, parcel: Message) -> Refused | None:
        """The error for a refusal; None when it is about an earlier hello."""
        words = self._read(parcel)
        if words is None:
            return None
        lines = '\n'.join(f'  {line}' for line in words.get('differences', ()))
        return Refused(
            f'{words.get("server") or "The server"} refuses {self._words["name"]}, '
            f'because they differ:\n{lines}\n'
            f'Start both sides from the same version, run, task and settings.'
        )

    def _read(self, parcel: Message) -> dict | None:
        words = unpack_value(parcel)
        if not isinstance(words, dict):
            raise MessageError('An answer to a hello is a dict.')
        return words if words.get('nonce') == self._nonce else None
