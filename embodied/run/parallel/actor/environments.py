"""Environments of a run: the worker, slot and stream of each one."""

import hashlib
import heapq
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ....core import base
from ....core.errors import ConfigError
from ..settings import FIRST_EVAL_ENV, MOST_ENVS

__all__ = ['EnvRegistry', 'Admission']

STREAM_BYTES = 8
MOST_REPLACED = 10_000  # sessions that are remembered not to come back
SILENT_SECONDS = 600.0  # of acting, after which an environment is believed gone
SWEEP_SECONDS = 60.0  # between two looks for such
LONGEST_REST = 1.0  # seconds of no acting at all that count; nobody is at fault


class Admission(NamedTuple):
    """Whose observations the rows of a batch are, [n] each."""

    envids: base.Array
    slots: base.Array  # of carries; 0 for rows that are not admitted
    streams: base.Array  # int64, names of the sequences in replay
    admitted: base.Array  # bool: part of an episode whose beginning we saw
    replaced: base.Array  # bool: another worker has taken the environment over
    renewed: base.Array  # [m] slots that begin with this batch


class Slot(NamedTuple):
    """Who plays an environment, and where."""

    session: bytes
    slot: int


class EnvRegistry:
    """Environments that come and go, those for training apart from those for eval.

    A new session is admitted with a first step and takes the lowest free slot, from 1
    on. A stream is one environment in one session. A session that was replaced never
    comes back: its worker was believed dead, or started twice. Who leaves, or sends
    nothing for long, gives the slot back.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._seats: dict[str, dict[int, Slot]] = {'train': {}, 'eval': {}}
        self._free: list[int] = []  # slots below the highest one in use, as a heap
        self._streams = np.zeros(1, np.int64)  # by slot
        self._heard = np.zeros(1)  # by slot, in seconds of acting
        self._replaced: dict[bytes, None] = {}  # sessions with environment, in order
        self._clock = clock
        self._looked = clock()
        self._acting, self._due = 0.0, SWEEP_SECONDS

    def __len__(self) -> int:
        """Environments that are being played."""
        return sum(map(len, self._seats.values()))

    def count(self, mode: base.Mode) -> int:
        """Those of one kind."""
        return len(self._seats[mode])

    @property
    def slots(self) -> int:
        """The highest slot that is in use."""
        return len(self._streams) - 1

    def leave(self, session: base.Array) -> None:
        """The worker of this session has gone, and its environments with it."""
        name = session.tobytes()
        self._remove(lambda seat: seat.session == name)

    def sweep(self) -> bool:
        """Gives those up who were silent for long; whether there are any.

        To be called with every batch, since it counts the time of acting.
        """
        now = self._clock()
        self._acting += min(now - self._looked, LONGEST_REST)
        self._looked = now
        if self._acting < self._due:
            return False
        self._due = self._acting + SWEEP_SECONDS
        before, last = len(self), self._acting - SILENT_SECONDS
        self._remove(lambda seat: self._heard[seat.slot] < last)
        return len(self) < before

    def admit(
        self,
        mode: base.Mode,
        envids: base.Array,
        sessions: base.Array,
        is_first: base.Array,
        repeated: bool = False,
    ) -> Admission:
        """Finds the slots of rows, sessions [n, 16], and registers new sessions.

        repeated: some rows were sent before, to an actor that is gone. New sessions
        among them must begin with another step, since this one may be stored already
        with the action that was chosen then.
        """
        numbers = envids.tolist()
        _check(mode, numbers)
        names = [session.tobytes() for session in sessions]
        new: list[int] = []
        slots = self._find(mode, numbers, names)
        if not all(slots):
            for envid, name, first in zip(numbers, names, is_first, strict=True):
                if first and not repeated and self._register(mode, envid, name):
                    new.append(self._seats[mode][envid].slot)
            slots = self._find(mode, numbers, names)
        replaced = [
            not slot and _key(mode, envid, name) in self._replaced
            for slot, envid, name in zip(slots, numbers, names, strict=True)
        ]
        places = np.array(slots, np.int32)
        self._heard[places] = self._acting
        return Admission(
            envids,
            places,
            self._streams[places],
            places > 0,
            np.array(replaced),
            np.unique(np.array(new, np.int32)),
        )

    def _find(self, mode: str, envids: list[int], names: list[bytes]) -> list[int]:
        """Slots of sessions that we know, 0 for the others."""
        seats = [self._seats[mode].get(envid) for envid in envids]
        return [
            seat.slot if seat is not None and seat.session == name else 0
            for seat, name in zip(seats, names, strict=True)
        ]

    def _register(self, mode: str, envid: int, name: bytes) -> bool:
        """Whether the session is new."""
        key, before = _key(mode, envid, name), self._seats[mode].get(envid)
        if (before and before.session == name) or key in self._replaced:
            return False
        if before is not None:
            self._replaced[_key(mode, envid, before.session)] = None
            if len(self._replaced) > MOST_REPLACED:
                del self._replaced[next(iter(self._replaced))]
        slot = before.slot if before is not None else self._take_slot()
        self._seats[mode][envid] = Slot(name, slot)
        digest = hashlib.blake2b(key, digest_size=STREAM_BYTES).digest()
        self._streams[slot] = int.from_bytes(digest) >> 1  # not negative
        return True

    def _take_slot(self) -> int:
        if self._free:
            return heapq.heappop(self._free)
        self._streams = np.append(self._streams, 0)
        self._heard = np.append(self._heard, self._acting)
        return self.slots

    def _remove(self, gone: Callable[[Slot], bool]) -> None:
        for seats in self._seats.values():
            for envid in [envid for envid, seat in seats.items() if gone(seat)]:
                del seats[envid]
        used = {x.slot for seats in self._seats.values() for x in seats.values()}
        highest = max(used, default=0)
        self._free = sorted(set(range(1, highest)) - used)  # which is a heap
        self._streams = self._streams[: highest + 1].copy()
        self._heard = self._heard[: highest + 1].copy()


def _key(mode: str, envid: int, name: bytes) -> bytes:
    return name + envid.to_bytes(STREAM_BYTES) + mode.encode()


def _check(mode: str, envids: list[int]) -> None:
    end = MOST_ENVS + (FIRST_EVAL_ENV if mode == 'eval' else 0)
    wrong = [envid for envid in envids if not 0 <= envid < end]
    if wrong:
        raise ConfigError(
            f'A worker plays environment {wrong[0]}. Number them from 0 on, below '
            f'{end}.'
        )
