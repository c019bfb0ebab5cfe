"""navix: MiniGrid in JAX."""

import difflib
from collections.abc import Mapping
from typing import Any

import elements
import numpy as np

from ....core.errors import ConfigError
from ...extras import require
from ..seeds import Seeds
from .contract import FunctionalEnv, Transition, import_jax
from .for_agents import for_agents
from .members import FunctionalVectorEnv

__all__ = ['FromNavix', 'make_navix']

SYMBOLS = 12  # kinds of things, of which there are more than colors or directions
TERMINATION = 2  # of the types of steps


class FromNavix(FunctionalEnv):
    """An environment of navix, without its own resets.

    Arrays of symbols are integers, images uint8.
    """

    def __init__(self, env: Any, images: bool = False) -> None:
        _, self._jnp = import_jax()
        self._env = env
        shape = tuple(env.observation_space.shape)
        if images:
            self._key, space = 'image', elements.Space(np.uint8, shape)
        else:
            self._key, space = 'symbols', elements.Space(np.int32, shape, 0, SYMBOLS)
        self.obs_space = {self._key: space}
        actions = len(env.action_set)
        self.act_space = {'action': elements.Space(np.int32, (), 0, actions)}

    def init(self, key: Any) -> tuple[Any, dict[str, Any]]:
        step = self._env.reset(key)
        return step, {self._key: step.observation}

    def transition(self, key: Any, state: Any, action: Mapping[str, Any]) -> Transition:
        # `step` would reset; the random numbers of `_step` are in its state.
        step = self._env._step(state, action['action'])
        obs = {self._key: step.observation}
        is_terminal = step.step_type == TERMINATION
        return step, obs, step.reward, step.step_type > 0, is_terminal


def make_navix(
    name: str,
    seed: Seeds = None,
    num: int = 16,
    size: int = 64,
    length: int = 0,
    image: bool = False,
) -> FunctionalVectorEnv:
    """`num` members of the environment `Navix-<name>`, seen from where the player is.

    image: pictures instead of symbols. length: 0 keeps the library's 100 steps.
    """
    navix = require('navix', 'navix')
    known = [x.removeprefix('Navix-') for x in navix.registry()]
    if name not in known:
        close = difflib.get_close_matches(name, known, n=3)
        hint = f' Closest names: {", ".join(close)}.' if close else ''
        raise ConfigError(f'navix has no environment {name!r}.{hint}')
    views = navix.observations
    view = views.rgb_first_person if image else views.symbolic_first_person
    limit = {'max_steps': length} if length else {}
    env = navix.make(f'Navix-{name}', observation_fn=view, **limit)
    functional = for_agents(FromNavix(env, image), size)
    return FunctionalVectorEnv(functional, num, seed)
