"""Handshake, client side: declares what the client is and checks the answer."""

import hmac
import secrets
from typing import Any

from ..codec.encoding import pack, unpack_value
from ..codec.frames import Kind, Message
from ..codec.shared_memory import Probe, supported
from ..errors import MessageError, Refused
from ..interface import Settings
from ..keys import ClientKeys
from .identity import Identity, prove

__all__ = ['Accepted', 'ClientHandshake']

NONCE_BYTES = 16


class Accepted:
    """What the server has answered about itself and about shared memory."""

    def __init__(self, fields: dict, use_slabs: bool) -> None:
        self.server = str(fields.get('server', ''))
        probe = fields.get('probe')
        self.server_maps_ours = use_slabs and fields.get('slabs') is True
        self.server_pid: int | None = None  # if its slabs can be mapped here
        if use_slabs and isinstance(probe, dict):
            self.server_pid = Probe.pid_if_mappable(probe)


class ClientHandshake:
    """One handshake after the other; answers to earlier ones are ignored."""

    def __init__(
        self,
        name: str,
        session: bytes,
        identity: Identity | None,
        keys: ClientKeys | None,
        settings: Settings,
    ) -> None:
        self._keys = keys
        self._probe = Probe() if supported() and settings.slab_bytes else None
        self._fields: dict[str, Any] = {
            'name': name,
            'session': session,
            'identity': (identity or Identity()).plain(),
            'probe': self._probe and self._probe.describe(),
        }
        self._nonce = b''

    def close(self) -> None:
        if self._probe is not None:
            self._probe.close()

    def opening(self) -> Message:
        """The message that begins a handshake."""
        self._nonce = secrets.token_bytes(NONCE_BYTES)
        return pack(Kind.OPEN, {**self._fields, 'nonce': self._nonce})

    def proof(self, message: Message) -> Message | None:
        """The reply to a challenge; None if that belongs to an earlier handshake."""
        fields = self._read(message)
        if fields is None:
            return None
        if self._keys is None:
            raise Refused(
                'The server asks for the keys of its run and we have none. Give the '
                'client the folder with client.json, or set DREAMER_KEYS.'
            )
        challenge = fields.get('challenge')
        if not isinstance(challenge, bytes):
            raise MessageError('A challenge without its bytes.')
        proof = prove(self._keys.token, 'client', challenge)
        return pack(Kind.OPEN, {**self._fields, 'nonce': self._nonce, 'proof': proof})

    def accepted(self, message: Message) -> Accepted | None:
        """Checks an acceptance; None if it belongs to an earlier handshake."""
        fields = self._read(message)
        if fields is None:
            return None
        if self._keys is not None:
            expected = prove(self._keys.token, 'server', self._nonce)
            if not hmac.compare_digest(fields.get('proof') or b'', expected):
                raise Refused(
                    'The server does not hold the token of our run. Check the address '
                    'and that both sides use the same keys.'
                )
        return Accepted(fields, self._probe is not None)

    def refusal(self, message: Message) -> Refused | None:
        """The error for a refusal; None if it belongs to an earlier handshake."""
        fields = self._read(message)
        if fields is None:
            return None
        lines = '\n'.join(f'  {line}' for line in fields.get('differences', ()))
        return Refused(
            f'{fields.get("server") or "The server"} refuses {self._fields["name"]}, '
            f'because they differ:\n{lines}\n'
            f'Start both sides from the same version, run, task and settings.'
        )

    def _read(self, message: Message) -> dict | None:
        fields = unpack_value(message)
        if not isinstance(fields, dict):
            raise MessageError('The answer to an opening is a dict.')
        return fields if fields.get('nonce') == self._nonce else None
