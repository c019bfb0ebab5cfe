"""Rollout: steps of policy and environments in one program, K at a time."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from embodied.core import base

from .devices import near_host
from .packing import PackedRows
from .programs import Compiler, Program

__all__ = ['Members', 'Rollout']

# policy(params, carry, obs, count) -> carry, acts, outs
Policy = Callable[[Any, Any, Any, Any], tuple[Any, Any, Any]]


class Members(Protocol):
    """N environments as pure functions."""

    num: int
    act_space: base.Spaces

    def init_members(self, seed: Any = None) -> Any:
        """State in which all members begin with the next step."""

    def step_members(
        self, members: Any, actions: Mapping[str, Any]
    ) -> tuple[Any, dict[str, Any]]:
        """State and rows [N, ...] after actions [N, ...] with `reset`."""


class Rollout:
    """Plays all members `steps` times per call; they live on the device.

    The members begin when the rollout is made, so another process begins new episodes.
    Transitions are those of `embodied.Driver`: an action follows what was seen, and the
    last step of an episode has zeros.
    """

    def __init__(
        self,
        members: Members,
        steps: int,
        policy: Policy,
        visible: tuple[str, ...],
        carry: base.Carry,
        compiler: Compiler,
        device: jax.Device | None = None,
        seed: Any = None,
    ):
        """policy: sees the `visible` keys, from the carry of N fresh environments."""
        self.num, self.steps = members.num, steps
        self._members, self._policy, self._visible = members, policy, visible
        self._results: PackedRows | None = None  # known once the program was traced
        placements = (None, near_host(device))
        self._program = Program('rollout', compiler, self._roll, (1,), placements)
        zeros = {
            key: jnp.zeros((self.num, *space.shape), space.dtype)
            for key, space in members.act_space.items()
        }
        acts = {**zeros, 'reset': jnp.ones(self.num, bool)}
        state = members.init_members(seed), carry, acts
        self._state = jax.device_put(state, device)

    def __call__(self, params: list[jax.Array], count: np.uint32) -> 'Rolled':
        """Begins to play; count: of the first of the policy's calls."""
        self._state, data = self._program('rollout', params, self._state, count)
        data.copy_to_host_async()
        assert self._results is not None
        return Rolled(data, self._results, (self.steps, self.num))

    def _roll(self, params: Any, state: Any, count: jax.Array) -> tuple[Any, jax.Array]:
        step = lambda state, number: self._step(params, state, number)
        numbers = count + jnp.arange(self.steps, dtype=jnp.uint32)
        state, trans = jax.lax.scan(step, state, numbers)
        rows = {k: v.reshape(-1, *v.shape[2:]) for k, v in trans.items()}
        self._results = PackedRows(rows)
        return state, self._results.join_on_device(rows)

    def _step(self, params: Any, state: Any, number: Any) -> tuple[Any, Any]:
        members, carry, acts = state
        members, obs = self._members.step_members(members, acts)
        visible = {key: obs[key] for key in self._visible}
        carry, acts, outs = self._policy(params, carry, visible, number)
        ended = obs['is_last']
        acts = {key: _zero_where(ended, value) for key, value in acts.items()}
        state = members, carry, {**acts, 'reset': ended}
        return state, {**obs, **acts, **outs}


class Rolled:
    """Transitions on their way to the host."""

    def __init__(self, data: jax.Array, results: PackedRows, lead: tuple[int, int]):
        self._data, self._results, self._lead = data, results, lead

    def fetch(self) -> base.Batch:
        """[K, N, ...] per key; waits until they have been played."""
        rows = self._results.split(np.asarray(self._data))
        return {k: v.reshape(*self._lead, *v.shape[1:]) for k, v in rows.items()}


def _zero_where(rows: jax.Array, values: jax.Array) -> jax.Array:
    rows = rows.reshape(-1, *[1] * (values.ndim - 1))
    return jnp.where(rows, jnp.zeros_like(values), values)
