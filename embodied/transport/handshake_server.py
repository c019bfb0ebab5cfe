"""Handshake, server side: compares what a client declares and asks for proof."""

import dataclasses
import hmac
import secrets
from collections.abc import Callable
from typing import Any

from . import handshake_identity as hello
from .codec.encoding import pack
from .codec.frames import Kind, Message
from .codec.shared_memory import Probe, SlabReader, supported
from .errors import MessageError
from .interface import Settings
from .keys import ServerKeys
from .security import WarnOnce

__all__ = ['Admitted', 'ServerHandshake']

SESSION_BYTES = 16
NONCE_BYTES = 16
MAX_NAME = 200
MAX_CHALLENGES = 1000


@dataclasses.dataclass
class Admitted:
    """A client that may come in."""

    session: bytes
    name: str
    pid: int | None  # where its slabs can be mapped

    def reader(self, release: Callable[[int], None]) -> SlabReader | None:
        return None if self.pid is None else SlabReader(self.pid, release)


class ServerHandshake:
    """Compares hellos with ours and asks for proof of membership."""

    def __init__(
        self,
        server: str,
        identity: hello.Identity,
        keys: ServerKeys | None,
        settings: Settings,
        logbook: WarnOnce,
    ) -> None:
        self._server = server
        self._plain = identity.plain()
        self._keys = keys
        self._logbook = logbook
        self._probe = Probe() if supported() and settings.slab_bytes else None
        self._challenges: dict[str, bytes] = {}

    def close(self) -> None:
        if self._probe is not None:
            self._probe.close()

    def greet(self, link: str, words: Any) -> tuple[Message | None, Admitted | None]:
        """The answer to a hello, if it deserves one, and the guest if it is one."""
        session, name, nonce, theirs = _check(words)
        if self._keys is not None and not self._proven(link, words, name):
            return self._challenge(link, words, nonce), None
        lines = hello.differences(self._plain, theirs)
        if lines:
            self._logbook.warn(name, f'refused, it differs in {"; ".join(lines)}')
            refusal = {'nonce': nonce, 'server': self._server, 'differences': lines}
            return pack(Kind.REFUSED, refusal), None
        pid = self._mappable(words)
        welcome = {'nonce': nonce, 'server': self._server, 'slabs': pid is not None}
        if self._keys is not None:
            welcome['proof'] = hello.prove(self._keys.token, 'server', nonce)
        if self._probe is not None:
            welcome['probe'] = self._probe.words()
        return pack(Kind.WELCOME, welcome), Admitted(session, name, pid)

    def _proven(self, link: str, words: dict, name: str) -> bool:
        proof, challenge = words.get('proof'), self._challenges.pop(link, None)
        if not isinstance(proof, bytes) or challenge is None:
            return False
        assert self._keys is not None
        if hmac.compare_digest(
            proof, hello.prove(self._keys.token, 'client', challenge)
        ):
            return True
        self._logbook.warn(name, 'refused, it does not hold the token of this run.')
        return False

    def _challenge(self, link: str, words: dict, nonce: bytes) -> Message | None:
        if 'proof' in words:
            return None  # A wrong key gets no answer.
        if len(self._challenges) >= MAX_CHALLENGES:
            self._challenges.pop(next(iter(self._challenges)))
        self._challenges[link] = secrets.token_bytes(NONCE_BYTES)
        return pack(
            Kind.CHALLENGE, {'nonce': nonce, 'challenge': self._challenges[link]}
        )

    def _mappable(self, words: dict) -> int | None:
        """The process whose slabs we can map, which it claims to be."""
        probe = words.get('probe')
        if self._probe is None or not isinstance(probe, dict):
            return None
        return Probe.pid_if_mappable(probe)


def _check(words: Any) -> tuple[bytes, str, bytes, Any]:
    if not isinstance(words, dict):
        raise MessageError('A hello is a dict.')
    session, name = words.get('session'), words.get('name')
    nonce = words.get('nonce')
    valid = (
        isinstance(session, bytes)
        and len(session) == SESSION_BYTES
        and isinstance(nonce, bytes)
        and len(nonce) == NONCE_BYTES
        and isinstance(name, str)
        and len(name) <= MAX_NAME
    )
    if not valid:
        raise MessageError('A hello without session, name and nonce.')
    return session, name, nonce, words.get('identity')  # type: ignore[return-value]
