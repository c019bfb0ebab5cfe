"""One member: a vector environment in the place of a single one."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...core.base import Env, Spaces
from ..runtime.stacking import take_members
from .rows import members_of

__all__ = ['OneMember', 'one_member']


def one_member(env: Any) -> Any:
    """The environment, as its first member alone if it is a vector environment."""
    members = members_of(env)
    return OneMember(env, members) if members else env


class OneMember(Env):
    """Plays the first member; the others get zeros as actions."""

    def __init__(self, env: Any, members: int) -> None:
        self._env = env
        self._members = members
        self._first: dict[str, Any] | None = None  # row that came beside a last one
        self._ended = np.ones(members, bool)

    @property
    def obs_space(self) -> Spaces:
        return self._env.obs_space

    @property
    def act_space(self) -> Spaces:
        return self._env.act_space

    def step(self, action: Mapping[str, Any]) -> dict[str, Any]:
        if self._first is not None:
            first, self._first = self._first, None
            return first
        actions = {
            key: np.zeros((self._members, *space.shape), space.dtype)
            for key, space in self.act_space.items()
        }
        actions['reset'] = self._ended
        for key, value in action.items():
            actions[key][0] = value
        obs = self._env.step(actions)
        rows, final = take_members(obs, self.obs_space, self._members)
        self._ended = rows['is_last'].copy()
        row = {key: value[0] for key, value in rows.items()}
        if final is None or 0 not in final.members:
            return row
        self._first = row
        last = final.members.tolist().index(0)
        return {key: value[last] for key, value in final.rows.items()}

    def close(self) -> None:
        self._env.close()
