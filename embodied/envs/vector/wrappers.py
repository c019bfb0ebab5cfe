"""Wrappers of vector environments that need to know which members begin and end."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...core.base import Batch
from ...core.errors import ConfigError
from ..wrappers import Wrapper
from .member_rows import stack_members
from .rows import FINAL, Final, members_of, split_final

__all__ = ['HostArrays', 'VectorRepeat', 'VectorTimeLimit', 'on_host']


class HostArrays(Wrapper):
    """Observations as NumPy arrays [N, ...], wherever the simulator keeps them."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self._spaces = env.obs_space
        self._members = members_of(env)

    def step(self, action: Mapping[str, Any]) -> dict[str, Any]:
        return stack_members(self.env.step(action), self._spaces, self._members)


def on_host(env: Any) -> Any:
    """The environment, with observations as NumPy arrays if it has members."""
    inner = env
    while isinstance(inner, Wrapper):
        if isinstance(inner, HostArrays):
            return env
        inner = inner.env
    return HostArrays(env) if members_of(env) else env


class VectorRepeat(Wrapper):
    """Takes the same actions several times; rewards add up.

    A member whose episode ends or begins on the way waits for the others: it begins its
    next episode again and again, of which only the last beginning counts.
    """

    def __init__(self, env: Any, repeat: int) -> None:
        super().__init__(env)
        if repeat < 1:
            raise ConfigError(f'VectorRepeat needs repeat >= 1, got {repeat}.')
        if not getattr(env, 'resets_members', True):
            raise ConfigError(
                f'repeat={repeat} needs a vector environment that can reset one member '
                f'at a time, and {env!r} cannot. Let the simulator itself repeat '
                f'actions.'
            )
        self._repeat = repeat

    def step(self, action: Mapping[str, Any]) -> dict[str, Any]:
        rows, final = split_final(self.env.step(action))
        finals = [final] if final is not None else []
        for _ in range(self._repeat - 1):
            waiting = rows['is_last'] | rows['is_first']
            if waiting.all():
                break
            rows = {k: np.array(v) for k, v in rows.items()}  # The env may reuse them.
            finals = [x._replace(rows=_copied(x.rows)) for x in finals]
            obs = self.env.step({**action, 'reset': waiting})
            rows, final = _follow(rows, *split_final(obs))
            finals += [final] if final is not None else []
        if finals:
            members = np.concatenate([x.members for x in finals])
            last = {
                k: np.concatenate([x.rows[k] for x in finals]) for k in finals[0].rows
            }
            rows[FINAL] = Final(members, last)
        return rows


def _copied(rows: Batch) -> Batch:
    return {k: np.array(v) for k, v in rows.items()}


def _follow(
    before: Batch, rows: Batch, final: Final | None
) -> tuple[Batch, Final | None]:
    """The rows after one more step; members that had ended keep their last rows."""
    ended = before['is_last']
    reward = np.where(before['is_first'], 0, before['reward'])
    total = np.where(rows['is_first'], rows['reward'], reward + rows['reward'])
    if final is not None:
        last = {**final.rows, 'reward': final.rows['reward'] + reward[final.members]}
        final = final._replace(rows=last)
    rows = {**rows, 'reward': total.astype(before['reward'].dtype)}
    for key, value in rows.items():
        where = ended.reshape(-1, *[1] * (np.ndim(value) - 1))
        rows[key] = np.where(where, before[key], value)
    return rows, final


class VectorTimeLimit(Wrapper):
    """Ends episodes of members after `duration` steps: is_last, but not is_terminal.

    A simulator that cannot reset one member at a time goes on at such an end: the
    member's next row is the first of another episode all the same.
    """

    def __init__(self, env: Any, duration: int) -> None:
        super().__init__(env)
        if duration < 1:
            raise ConfigError(f'VectorTimeLimit needs duration >= 1, got {duration}.')
        self._duration = duration
        self._count = np.zeros(members_of(env), np.int64)
        self._limited = np.zeros(members_of(env), bool)  # ended by the limit alone

    def step(self, action: Mapping[str, Any]) -> dict[str, Any]:
        reset = action['reset'] | self._limited
        obs = self.env.step({**action, 'reset': reset})
        # Of a simulator that cannot reset one member, this row still has a reward.
        reward = np.where(self._limited, 0, obs['reward']).astype(obs['reward'].dtype)
        is_first = obs['is_first'] | self._limited
        self._count = np.where(is_first, 0, self._count + 1)
        late = self._count >= self._duration
        self._limited = late & ~obs['is_last']
        is_last = obs['is_last'] | late
        return {**obs, 'reward': reward, 'is_first': is_first, 'is_last': is_last}

    def _save(self) -> Any:
        return {'limit': (self._count, self._limited), 'env': self.env.save()}

    def _load(self, data: Any) -> None:
        self._count, self._limited = data['limit']
        self.env.load(data['env'])
