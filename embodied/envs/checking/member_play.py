"""Random play of all members of a vector environment."""

import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from ...core.base import Batch
from ...core.errors import SpaceError
from ...core.random_agent import RandomAgent
from ..vector.member_rows import refuse_final
from ..vector.rows import members_of, split_final

__all__ = ['COMMON', 'COMPILED', 'Call', 'Part', 'name_members', 'play']

COMMON = ('reward', 'is_first', 'is_last', 'is_terminal')
COMPILED = 2  # calls that may compile programs of JAX and do not count as time
NAMED = 3  # members in a message


class Part(NamedTuple):
    """One row of each of these members."""

    members: np.ndarray  # [n]
    reset: np.ndarray  # [n], asked for
    rows: Batch  # [n, ...] per key
    name: str  # of one of its values in messages

    def common(self, key: str) -> np.ndarray:
        """The values [n] of one of the keys that every environment has."""
        return np.asarray(self.rows[key]).reshape(len(self.members), -1)[:, 0]


class Call(NamedTuple):
    """One step of all members: last rows of some may come ahead of the rows of all."""

    parts: tuple[Part, ...]
    seconds: float

    @property
    def all(self) -> Part:
        """The rows of all members."""
        return self.parts[-1]


def play(
    env: Any,
    calls: int,
    seconds: float,
    is_shared: bool = False,
    forced: Mapping[int, int] | None = None,
) -> Iterator[Call]:
    """Calls with random actions; each member is reset after its last row.

    is_shared: all members take the same actions. forced: in which calls which member is
    reset besides.
    """
    num = members_of(env)
    actions = {k: v for k, v in env.act_space.items() if k != 'reset'}
    agent = RandomAgent(env.obs_space, actions, seed=0)
    reset = np.ones(num, bool)
    deadline = np.inf
    for number in range(calls):
        _, acts, _ = agent.policy((), {'is_first': np.zeros(1 if is_shared else num)})
        if is_shared:
            acts = {k: np.repeat(v, num, 0) for k, v in acts.items()}
        if forced and number in forced:
            reset[forced[number]] = True
        begin = time.perf_counter()
        obs = env.step({**acts, 'reset': reset})
        call = _read(obs, reset, time.perf_counter() - begin)
        yield call
        reset = call.all.common('is_last').astype(bool)
        if number + 1 == COMPILED:
            deadline = time.monotonic() + seconds
        if time.monotonic() > deadline:
            return


def _read(obs: Mapping[str, Any], reset: np.ndarray, seconds: float) -> Call:
    rows, final = split_final(obs)
    num = len(reset)
    everyone = Part(np.arange(num), reset, rows, 'Observation')
    if final is None:
        return Call((everyone,), seconds)
    missing = [key for key in COMMON if key not in final.rows]
    if missing:
        raise SpaceError(f"The rows under 'final' lack {', '.join(missing)}.")
    refuse_final(final, rows, num)
    last = Part(final.members, reset[final.members], final.rows, 'Last observation')
    return Call((last, everyone), seconds)


def name_members(flags: np.ndarray) -> str:
    """The members [N] that are true, in words, as in `members 0, 2, 5 and 11 more`."""
    numbers = np.flatnonzero(flags).tolist()
    if len(numbers) == 1:
        return f'member {numbers[0]}'
    if len(numbers) <= NAMED:
        *others, last = numbers
        return f'members {", ".join(map(str, others))} and {last}'
    shown = ', '.join(map(str, numbers[:NAMED]))
    return f'members {shown} and {len(numbers) - NAMED} more'
