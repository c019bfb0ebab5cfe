"""Vector environments of functional ones: all members in one compiled program."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ....core.base import VectorEnv
from ....core.errors import ConfigError
from ...spaces import KnownSpaces, act_spaces, obs_spaces, refuse_shared
from ..seeds import Seeds, member_seeds
from .contract import FunctionalEnv, import_jax

__all__ = ['FunctionalVectorEnv', 'Members']

SEED_RANGE = 2**32


class Members(NamedTuple):
    """State of all members, a tree of JAX arrays [N, ...]."""

    keys: Any  # of random numbers
    state: Any
    ended: Any  # whether the episode is over: the next step begins another


class FunctionalVectorEnv(KnownSpaces, VectorEnv):
    """`num` members of a functional environment, stepped by one program of JAX.

    A member that is asked to reset, or whose episode is over, begins another with the
    step. Its random numbers depend on its seed and the number of steps alone. Rows are
    arrays of JAX on the device on which JAX computes.

    `init_members` and `step_members` are the same without a state of their own: pure
    functions that a larger program can contain.
    """

    def __init__(self, env: FunctionalEnv, num: int, seed: Seeds = None) -> None:
        if num < 1:
            raise ConfigError(f'A vector environment needs num >= 1, got {num}.')
        refuse_shared(env.obs_space, env.act_space)
        self._jax, self._jnp = import_jax()
        self._env = env
        self.num = num
        self._obs_space = obs_spaces(env.obs_space)
        self._act_space = act_spaces(env.act_space)
        self._step = self._jax.jit(self.step_members)
        self._members = self.init_members(seed)

    @property
    def functional(self) -> FunctionalEnv:
        """The environment inside."""
        return self._env

    def init_members(self, seed: Seeds = None) -> Members:
        """State in which all members begin with the next step."""
        jax, jnp = self._jax, self._jnp
        seeds = member_seeds(seed, self.num)
        if seeds is None:
            numbers = np.random.SeedSequence().generate_state(self.num)
        else:
            numbers = np.array([x % SEED_RANGE for x in seeds], np.uint32)
        keys = jax.vmap(jax.random.PRNGKey)(jnp.asarray(numbers))
        state, _ = jax.jit(jax.vmap(self._env.init))(keys)
        state = jax.tree.map(lambda x: self._cast(x, x), state)
        return Members(keys, state, jnp.ones(self.num, bool))

    def step_members(
        self, members: Members, actions: Mapping[str, Any]
    ) -> tuple[Members, dict[str, Any]]:
        """One step of all members, a pure function: state and rows [N, ...]."""
        jax, jnp = self._jax, self._jnp
        begin = jnp.asarray(actions['reset'], bool) | members.ended
        keys = jax.vmap(lambda key: jax.random.split(key, 3))(members.keys)
        keys, init_keys, step_keys = keys[:, 0], keys[:, 1], keys[:, 2]
        acts = {key: jnp.asarray(actions[key]) for key in self._env.act_space}
        after, obs, reward, is_last, is_terminal = jax.vmap(self._env.transition)(
            step_keys, members.state, acts
        )
        stepped = self._as_declared(after, members.state, obs)
        # Beginnings may be costly, so they are skipped where no member begins.
        state, obs = jax.lax.cond(
            begin.any(),
            lambda: self._begin(init_keys, begin, *stepped),
            lambda: stepped,
        )
        is_last = jnp.asarray(is_last, bool) & ~begin
        rows = {
            **obs,
            'reward': jnp.where(begin, 0, reward).astype(jnp.float32),
            'is_first': begin,
            'is_last': is_last,
            'is_terminal': jnp.asarray(is_terminal, bool) & is_last,
        }
        return Members(keys, state, is_last), rows

    def step(self, actions: Mapping[str, Any]) -> dict[str, Any]:
        needed = {key: actions[key] for key in self._act_space}
        self._members, rows = self._step(self._members, needed)
        return rows

    def save(self) -> Any:
        """State of all members as NumPy arrays."""
        return [np.array(self._raw(x)) for x in self._jax.tree.leaves(self._members)]

    def load(self, data: Any) -> None:
        jax = self._jax
        leaves, tree = jax.tree.flatten(self._members)
        shapes = [self._raw(x).shape for x in leaves]
        if [x.shape for x in data] != shapes:
            raise ConfigError(
                f'The saved state of {self.num} members has other shapes than those of '
                f'{type(self._env).__name__}: it was saved with other settings.'
            )
        restored = map(self._restore, data, leaves)
        self._members = jax.tree.unflatten(tree, list(restored))

    def close(self) -> None:
        """Nothing is held but arrays."""

    def _begin(
        self, keys: Any, begin: Any, state: Any, obs: dict[str, Any]
    ) -> tuple[Any, dict[str, Any]]:
        """The same state and rows, with beginnings where `begin` says so."""
        jax, jnp = self._jax, self._jnp
        fresh, first = jax.vmap(self._env.init)(keys)
        fresh, first = self._as_declared(fresh, state, first)

        def choose(a: Any, b: Any) -> Any:
            return jnp.where(begin.reshape(-1, *[1] * (b.ndim - 1)), a, b)

        return jax.tree.map(choose, (fresh, first), (state, obs))

    def _as_declared(
        self, state: Any, like: Any, obs: dict[str, Any]
    ) -> tuple[Any, dict[str, Any]]:
        """State in the dtypes of `like`, observations in those of their spaces."""
        state = self._jax.tree.map(self._cast, state, like)
        spaces = self._env.obs_space
        return state, {key: self._cast(obs[key], spaces[key]) for key in spaces}

    def _cast(self, value: Any, like: Any) -> Any:
        if self._is_key(value):
            return value
        return self._jax.lax.convert_element_type(value, like.dtype)

    def _is_key(self, value: Any) -> bool:
        """Whether it holds keys of random numbers, which are no plain numbers."""
        dtypes = self._jax.dtypes
        return dtypes.issubdtype(value.dtype, dtypes.prng_key)

    def _raw(self, value: Any) -> Any:
        return self._jax.random.key_data(value) if self._is_key(value) else value

    def _restore(self, data: Any, like: Any) -> Any:
        if self._is_key(like):
            return self._jax.random.wrap_key_data(data)
        return self._jnp.asarray(data, like.dtype)
