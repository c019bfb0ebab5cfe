"""Handshake, server side: compares what a client declares and asks for proof."""

import dataclasses
import hmac
import secrets
from collections.abc import Callable
from typing import Any

from ..codec.encoding import pack
from ..codec.frames import Kind, Message
from ..codec.shared_memory import Probe, SlabReader, supported
from ..errors import MessageError
from ..interface import Settings
from ..keys import ServerKeys
from ..security import WarnOnce
from .identity import Identity, differences, prove

__all__ = ['Admitted', 'ServerHandshake']

SESSION_BYTES = 16
NONCE_BYTES = 16
MAX_NAME = 200
MAX_CHALLENGES = 1000


@dataclasses.dataclass
class Admitted:
    """A client that has passed the handshake."""

    session: bytes
    name: str
    pid: int | None  # of its process, if its slabs can be mapped here

    def reader(self, release: Callable[[int], None]) -> SlabReader | None:
        return None if self.pid is None else SlabReader(self.pid, release)


class ServerHandshake:
    """Compares what clients declare with the server, and asks for proof of the token.

    server: its name.
    """

    def __init__(
        self,
        server: str,
        identity: Identity,
        keys: ServerKeys | None,
        settings: Settings,
        warnings: WarnOnce,
    ) -> None:
        self._server = server
        self._plain = identity.plain()
        self._keys = keys
        self._warnings = warnings
        self._probe = Probe() if supported() and settings.slab_bytes else None
        self._challenges: dict[str, bytes] = {}

    def close(self) -> None:
        if self._probe is not None:
            self._probe.close()

    def answer(
        self, connection: str, fields: Any
    ) -> tuple[Message | None, Admitted | None]:
        """What to answer to an opening, and the client if it is admitted.

        connection: its name. fields: the content of the opening.
        """
        session, name, nonce, theirs = _check(fields)
        if self._keys is not None and not self._is_proven(connection, fields, name):
            return self._challenge(connection, fields, nonce), None
        lines = differences(self._plain, theirs)
        if lines:
            self._warnings.warn(name, f'refused, it differs in {"; ".join(lines)}')
            refusal = {'nonce': nonce, 'server': self._server, 'differences': lines}
            return pack(Kind.REFUSED, refusal), None
        pid = self._mappable(fields)
        acceptance = {'nonce': nonce, 'server': self._server, 'slabs': pid is not None}
        if self._keys is not None:
            acceptance['proof'] = prove(self._keys.token, 'server', nonce)
        if self._probe is not None:
            acceptance['probe'] = self._probe.describe()
        return pack(Kind.ACCEPTED, acceptance), Admitted(session, name, pid)

    def _is_proven(self, connection: str, fields: dict, name: str) -> bool:
        proof, challenge = fields.get('proof'), self._challenges.pop(connection, None)
        if not isinstance(proof, bytes) or challenge is None:
            return False
        assert self._keys is not None
        if hmac.compare_digest(proof, prove(self._keys.token, 'client', challenge)):
            return True
        self._warnings.warn(name, 'refused, it does not hold the token of this run.')
        return False

    def _challenge(self, connection: str, fields: dict, nonce: bytes) -> Message | None:
        if 'proof' in fields:
            return None  # A wrong key gets no answer.
        if len(self._challenges) >= MAX_CHALLENGES:
            self._challenges.pop(next(iter(self._challenges)))
        challenge = self._challenges[connection] = secrets.token_bytes(NONCE_BYTES)
        return pack(Kind.CHALLENGE, {'nonce': nonce, 'challenge': challenge})

    def _mappable(self, fields: dict) -> int | None:
        """The process of the client, if its slabs can be mapped here."""
        probe = fields.get('probe')
        if self._probe is None or not isinstance(probe, dict):
            return None
        return Probe.pid_if_mappable(probe)


def _check(fields: Any) -> tuple[bytes, str, bytes, Any]:
    if not isinstance(fields, dict):
        raise MessageError('The message that opens a connection is a dict.')
    session, name = fields.get('session'), fields.get('name')
    nonce = fields.get('nonce')
    valid = (
        isinstance(session, bytes)
        and len(session) == SESSION_BYTES
        and isinstance(nonce, bytes)
        and len(nonce) == NONCE_BYTES
        and isinstance(name, str)
        and len(name) <= MAX_NAME
    )
    if not valid:
        raise MessageError('An opening without session, name and nonce.')
    return session, name, nonce, fields.get('identity')  # type: ignore[return-value]
