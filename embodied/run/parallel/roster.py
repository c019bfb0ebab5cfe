"""Roster: which session plays each environment, and under which stream it is stored."""

import hashlib
from typing import NamedTuple

import numpy as np

from ...core import base
from ...core.errors import ConfigError

__all__ = ['Roster', 'Rows']

STREAM_BYTES = 8


class Rows(NamedTuple):
    """Whose observations the rows of a batch are, [n] each."""

    envids: base.Array
    slots: base.Array  # of carries; 0 for rows that are not admitted
    streams: base.Array  # int64, names of the sequences in replay
    admitted: base.Array  # bool: part of an episode whose beginning we saw
    replaced: base.Array  # bool: another worker has taken the environment over
    renewed: base.Array  # [m] slots that begin with this batch


class Roster:
    """Environments 0 to `count` - 1. A new session is admitted with a first step.

    A stream is one environment in one session. A session that was replaced never
    comes back: its worker was believed dead, or started twice.
    """

    def __init__(self, count: int):
        self._sessions: list[bytes | None] = [None] * count
        self._streams = np.zeros(count, np.int64)
        self._replaced: set[bytes] = set()  # sessions with environment

    def __len__(self) -> int:
        """Environments that are being played."""
        return sum(session is not None for session in self._sessions)

    def leave(self, session: base.Array) -> None:
        """The worker of this session has gone, and its environments with it."""
        name = session.tobytes()
        self._sessions = [None if x == name else x for x in self._sessions]

    def admit(
        self,
        envids: base.Array,
        sessions: base.Array,
        is_first: base.Array,
        repeated: bool = False,
    ) -> Rows:
        """Finds the slots of rows, sessions [n, 16], and registers new sessions.

        repeated: some rows were sent before, to an actor that is gone. New sessions
        among them must begin with another step, since this one may be stored already
        with the action that was chosen then.
        """
        numbers = envids.tolist()
        self._check(numbers)
        names = [session.tobytes() for session in sessions]
        new: list[int] = []
        admitted = self._known(numbers, names)
        if not all(admitted):
            for envid, name, first in zip(numbers, names, is_first, strict=True):
                if first and not repeated and self._register(envid, name):
                    new.append(envid)
            admitted = self._known(numbers, names)
        replaced = [
            not known and self._key(envid, name) in self._replaced
            for known, envid, name in zip(admitted, numbers, names, strict=True)
        ]
        return Rows(
            envids,
            np.where(admitted, envids + 1, 0),
            self._streams[envids],
            np.array(admitted),
            np.array(replaced),
            np.array(new, envids.dtype) + 1,
        )

    def _known(self, envids: list[int], names: list[bytes]) -> list[bool]:
        rows = zip(envids, names, strict=True)
        return [self._sessions[envid] == name for envid, name in rows]

    def _register(self, envid: int, name: bytes) -> bool:
        """Whether the session is new."""
        key, before = self._key(envid, name), self._sessions[envid]
        if before == name or key in self._replaced:
            return False
        if before is not None:
            self._replaced.add(self._key(envid, before))
        self._sessions[envid] = name
        digest = hashlib.blake2b(key, digest_size=STREAM_BYTES).digest()
        self._streams[envid] = int.from_bytes(digest) >> 1  # not negative
        return True

    @staticmethod
    def _key(envid: int, name: bytes) -> bytes:
        return name + envid.to_bytes(STREAM_BYTES)

    def _check(self, envids: list[int]) -> None:
        count = len(self._sessions)
        wrong = [envid for envid in envids if not 0 <= envid < count]
        if wrong:
            raise ConfigError(
                f'A worker plays environment {wrong[0]}, but run.envs and '
                f'run.eval_envs only allow for numbers below {count}. Start all '
                f'processes of a run with the same options.'
            )
