"""Gymnax: classic control, MinAtar and bsuite in JAX."""

import difflib
from collections.abc import Mapping
from typing import Any

from ....core.errors import ConfigError
from ...extras import require
from ..seeds import Seeds
from .contract import FunctionalEnv, Transition
from .for_agents import for_agents
from .foreign_spaces import named, spaces_of
from .members import FunctionalVectorEnv

__all__ = ['FromGymnax', 'make_gymnax']


class FromGymnax(FunctionalEnv):
    """An environment of gymnax with its parameters, without its own resets."""

    def __init__(self, env: Any, params: Any = None) -> None:
        self._env = env
        self._params = env.default_params if params is None else params
        self.obs_space = spaces_of(env.observation_space(self._params))
        self.act_space = spaces_of(env.action_space(self._params), 'action')

    def init(self, key: Any) -> tuple[Any, dict[str, Any]]:
        obs, state = self._env.reset_env(key, self._params)
        return state, named(self.obs_space, obs)

    def transition(self, key: Any, state: Any, action: Mapping[str, Any]) -> Transition:
        obs, state, reward, terminated, _ = self._env.step_env(
            key, state, action['action'], self._params
        )
        truncated = self._env.is_truncated(state, self._params)
        is_last = terminated | truncated
        return state, named(self.obs_space, obs), reward, is_last, terminated


def make_gymnax(
    name: str, seed: Seeds = None, num: int = 16, size: int = 64, length: int = 0
) -> FunctionalVectorEnv:
    """`num` members of the environment `name`.

    Grids of symbols, such as those of MinAtar, become vectors. length: 0 keeps the
    environment's own time limit.
    """
    gymnax = require('gymnax', 'gymnax')
    if name not in gymnax.registered_envs:
        close = difflib.get_close_matches(name, gymnax.registered_envs, n=3)
        hint = f' Closest names: {", ".join(close)}.' if close else ''
        raise ConfigError(f'gymnax has no environment {name!r}.{hint}')
    env = for_agents(FromGymnax(*gymnax.make(name)), size, length)
    return FunctionalVectorEnv(env, num, seed)
