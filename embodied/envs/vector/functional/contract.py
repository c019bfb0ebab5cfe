"""The contract of functional environments, and what wraps them."""

import importlib
from collections.abc import Mapping
from typing import Any, TypeAlias

from ....core.base import Spaces

__all__ = ['FunctionalEnv', 'FunctionalWrapper', 'Transition', 'import_jax']

State: TypeAlias = Any  # a tree of JAX arrays
Obs: TypeAlias = dict[str, Any]
Transition: TypeAlias = tuple[State, Obs, Any, Any, Any]


class FunctionalEnv:
    """One environment as two pure functions, which JAX can trace, batch and compile.

    `obs_space` and `act_space` hold the task's keys alone, without reward, the flags
    and reset. Keys `log/...` of observations are for logging only. The functions do not
    reset: FunctionalVectorEnv begins episodes.
    """

    obs_space: Spaces
    act_space: Spaces

    def init(self, key: Any) -> tuple[State, Obs]:
        """State and observation at the beginning of an episode."""
        raise NotImplementedError('init(key) -> state, obs')

    def transition(
        self, key: Any, state: State, action: Mapping[str, Any]
    ) -> Transition:
        """state, obs, reward, is_last, is_terminal after one step.

        The state has the structure, shapes and dtypes that `init` gives.
        """
        raise NotImplementedError(
            'transition(key, state, action) -> state, obs, reward, is_last, is_terminal'
        )


class FunctionalWrapper(FunctionalEnv):
    """Passes everything through; subclasses override what they change."""

    def __init__(self, env: FunctionalEnv) -> None:
        self.env = env
        self.obs_space = dict(env.obs_space)
        self.act_space = dict(env.act_space)

    def init(self, key: Any) -> tuple[State, Obs]:
        state, obs = self.env.init(key)
        return state, self.change_obs(obs)

    def transition(
        self, key: Any, state: State, action: Mapping[str, Any]
    ) -> Transition:
        action = self.change_action(action)
        state, obs, *rest = self.env.transition(key, state, action)
        return (state, self.change_obs(obs), *rest)

    def change_action(self, action: Mapping[str, Any]) -> Mapping[str, Any]:
        """The action that the inner environment gets."""
        return action

    def change_obs(self, obs: Obs) -> Obs:
        """The observation that the outside gets."""
        return obs


def import_jax() -> tuple[Any, Any]:
    """jax and jax.numpy, which processes without such environments never load."""
    return importlib.import_module('jax'), importlib.import_module('jax.numpy')
