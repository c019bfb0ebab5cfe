"""Craftax and Craftax-Classic: open worlds in which to gather, craft and survive."""

import contextlib
import importlib
import io
from collections.abc import Mapping
from typing import Any

import elements
import numpy as np

from ....core.errors import ConfigError
from ...extras import check
from ..seeds import Seeds
from .contract import FunctionalEnv, Transition
from .for_agents import for_agents
from .foreign_spaces import named, spaces_of
from .members import FunctionalVectorEnv

__all__ = ['FromCraftax', 'make_craftax']

LOG = 'log/achievements'
NAMES = {
    'symbolic': 'Craftax-Symbolic-v1',
    'pixels': 'Craftax-Pixels-v1',
    'classic-symbolic': 'Craftax-Classic-Symbolic-v1',
    'classic-pixels': 'Craftax-Classic-Pixels-v1',
}


class FromCraftax(FunctionalEnv):
    """A world without resets of its own; logs how many achievements are unlocked."""

    def __init__(self, env: Any, params: Any = None) -> None:
        self._env = env
        self._params = env.default_params if params is None else params
        self.obs_space = {
            **spaces_of(env.observation_space(self._params)),
            LOG: elements.Space(np.float32),
        }
        self.act_space = spaces_of(env.action_space(self._params), 'action')

    def init(self, key: Any) -> tuple[Any, dict[str, Any]]:
        obs, state = self._env.reset_env(key, self._params)
        return state, self._obs(state, obs)

    def transition(self, key: Any, state: Any, action: Mapping[str, Any]) -> Transition:
        obs, state, reward, is_last, _ = self._env.step_env(
            key, state, action['action'], self._params
        )
        # The end of the game's time is among what the library calls terminal.
        in_time = state.timestep < self._params.max_timesteps
        return state, self._obs(state, obs), reward, is_last, is_last & in_time

    def _obs(self, state: Any, obs: Any) -> dict[str, Any]:
        return {**named(self.obs_space, obs), LOG: state.achievements.sum()}


def make_craftax(
    name: str, seed: Seeds = None, num: int = 16, size: int = 64, length: int = 0
) -> FunctionalVectorEnv:
    """`num` worlds of one of the four kinds. length: 0 keeps the game's own limit.

    The library converts its textures when pixels are asked for the first time, which
    takes a minute.
    """
    if name not in NAMES:
        raise ConfigError(f'There is no craftax:{name}. There are {", ".join(NAMES)}.')
    check('craftax', 'craftax')
    with contextlib.redirect_stdout(io.StringIO()):  # It says what it loads.
        module = importlib.import_module('craftax.craftax_env')
        env = module.make_craftax_env_from_name(NAMES[name], auto_reset=False)
    functional = for_agents(FromCraftax(env), size, length)
    return FunctionalVectorEnv(functional, num, seed)
