"""An environment for tests that plays back what it is told to."""

from collections.abc import Mapping
from typing import Any

import elements
import numpy as np

from embodied.core.base import Env, Spaces
from embodied.envs.spaces import act_spaces, make_obs, obs_spaces


class Scripted(Env):
    """Ends terminally after `length` steps with rewards 1, 2, 3, ...

    `values` are its other observations, the same in every step. Keeps the actions that
    it got.
    """

    def __init__(
        self,
        length: int = 3,
        obs: Spaces | None = None,
        act: Spaces | None = None,
        values: Mapping[str, Any] | None = None,
    ) -> None:
        self._length = length
        self._obs = obs or {}
        self._act = act or {'action': elements.Space(np.int32, (), 0, 5)}
        self._values = dict(values or {})
        self.got: list[Mapping[str, Any]] = []
        self.resets = 0
        self._count = 0
        self._over = True

    @property
    def obs_space(self) -> Spaces:
        return obs_spaces(self._obs)

    @property
    def act_space(self) -> Spaces:
        return act_spaces(self._act)

    def step(self, action: Mapping[str, Any]) -> dict[str, Any]:
        self.got.append(action)
        if action['reset'] or self._over:
            self.resets += 1
            self._count = 0
            self._over = False
            return make_obs(self._values, is_first=True)
        self._count += 1
        self._over = self._count == self._length
        return make_obs(
            self._values, self._count, is_last=self._over, is_terminal=self._over
        )


class SavedScripted(Scripted):
    """The same with save and load."""

    def save(self) -> Any:
        return self._count, self._over

    def load(self, data: Any) -> None:
        self._count, self._over = data


def play(env: Any, actions: list[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Observations of a reset, then of each action."""
    zeros = {k: np.zeros(v.shape, v.dtype) for k, v in env.act_space.items()}
    steps = [{**zeros, 'reset': True}, *({**zeros, **a} for a in actions)]
    return [env.step(step) for step in steps]
