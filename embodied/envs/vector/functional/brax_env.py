"""Brax: rigid bodies in JAX. MuJoCo Playground has the same interface."""

import importlib
from collections.abc import Mapping
from typing import Any

import elements
import numpy as np

from ....core.base import Spaces
from ....core.errors import ConfigError
from ...extras import check
from ..seeds import Seeds
from .contract import FunctionalEnv, Transition, import_jax
from .for_agents import for_agents
from .members import FunctionalVectorEnv

__all__ = ['FromBrax', 'make_brax']

LENGTH = 1000  # steps of an episode in Brax's own training
PRIVILEGED = 'privileged_state'  # what a robot does not sense


class FromBrax(FunctionalEnv):
    """An environment whose `reset(key)` and `step(state, action)` give a State.

    It has none of the library's wrappers. Episodes have no time limit. Observations
    are `vector`, or keep their names without those that a robot does not sense.
    """

    def __init__(self, env: Any) -> None:
        jax, self._jnp = import_jax()
        self._env = env
        shapes = jax.eval_shape(env.reset, jax.random.PRNGKey(0)).obs
        self.obs_space: Spaces = {
            key: elements.Space(np.float32, x.shape)
            for key, x in _parts(shapes).items()
        }
        self.act_space = {
            'action': elements.Space(np.float32, (env.action_size,), -1, 1)
        }

    def init(self, key: Any) -> tuple[Any, dict[str, Any]]:
        state = self._env.reset(key)
        return state, _parts(state.obs)

    def transition(self, key: Any, state: Any, action: Mapping[str, Any]) -> Transition:
        # Random numbers are in the state.
        state = self._env.step(state, action['action'])
        done = self._jnp.asarray(state.done, bool)
        return state, _parts(state.obs), state.reward, done, done


def make_brax(
    name: str,
    seed: Seeds = None,
    num: int = 16,
    length: int = LENGTH,
    backend: str = '',
) -> FunctionalVectorEnv:
    """`num` members of the environment `name`, such as `ant`.

    backend: generalized, spring, positional or mjx; empty: the environment's own.
    """
    check('brax', 'brax')
    envs = importlib.import_module('brax.envs')
    settings = {'backend': backend} if backend else {}
    try:
        env = envs.get_environment(name, **settings)
    except KeyError as error:
        known = ', '.join(sorted(envs._envs))
        raise ConfigError(
            f'Brax has no environment {name!r}. It has {known}.'
        ) from error
    return FunctionalVectorEnv(for_agents(FromBrax(env), length=length), num, seed)


def _parts(obs: Any) -> dict[str, Any]:
    if not isinstance(obs, Mapping):
        return {'vector': obs}
    return {key: value for key, value in obs.items() if key != PRIVILEGED}
