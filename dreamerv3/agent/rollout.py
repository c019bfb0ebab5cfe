"""Rollout: policy and model step by step, for the loop that imagines.

A loop over time pays for the number of its operations. So whatever is multiplied with
the same input is one product here: deter with the first layers of the prior, of the
policy and of the next step, stoch with those of the policy and of the next step. What
only depends on parameters is prepared before the loop.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from embodied.jax import recurrence
from embodied.jax.nets.linear import multiply

from .actions import Values
from .networks.heads import Policy
from .networks.rssm import RSSM, Kernels, State, flatten, limited

__all__ = ['Rollout']


class Carry(NamedTuple):
    """A state, and the products of its deter for the next step."""

    state: State
    drive: jax.Array  # of the model's input layer
    policy_drive: jax.Array  # of the policy's first layer


class Rollout:
    """Acts and predicts without gradients, as policy(state.feat) and imagine_step."""

    def __init__(self, dyn: RSSM, policy: Policy, dtype: Any):
        self._dyn, self._policy = dyn, policy
        self._kernels = jax.lax.optimization_barrier(_kernels(dyn, policy, dtype))

    def begin(self, state: State) -> Carry:
        _, *drives = self._split(state.deter @ self._kernels['deter_out'])
        return Carry(state, *drives)

    def step(
        self, carry: Carry, noise: tuple[jax.Array, Values]
    ) -> tuple[Carry, Values]:
        """noise: for the state and for the action. Actions are as `draw` gives them."""
        state_noise, action_noise = noise
        dyn, policy, kernels = self._dyn, self._policy, self._kernels
        state, drive, policy_drive = carry
        x = flatten(state.stoch) @ kernels['stoch_out']
        stoch_drive, more = jnp.split(x, [drive.shape[-1]], -1)
        action = policy.actions.draw(policy.after(policy_drive + more), action_noise)
        vector = limited(policy.actions.join(action, state.deter.dtype))
        drives = (drive, stoch_drive, vector @ kernels['action_in'])
        own_drive = multiply(state.deter, kernels['hidden_own'])
        rest = (own_drive, dyn.hidden.bias.astype(own_drive.dtype))
        deter = dyn.core(recurrence.compute, kernels, state.deter, drives, rest)
        prior, drive, policy_drive = self._split(deter @ kernels['deter_out'])
        stoch = dyn.sample_prior(prior, state_noise, deter.dtype)
        return Carry(State(deter, stoch), drive, policy_drive), action

    def _split(self, x: jax.Array) -> list[jax.Array]:
        """Products of deter: for the prior, for the next step, for the policy."""
        prior, hidden = self._dyn.prior.layers[0], self._dyn.deter_in
        first = len(prior.linear.bias)
        return jnp.split(x, [first, first + len(hidden.linear.bias)], -1)


def _kernels(dyn: RSSM, policy: Policy, dtype: Any) -> Kernels:
    """The kernels of imagining, with products of the same input side by side."""
    kernels = dyn.kernels(dtype, dense=False)
    first = policy.mlp.layers[0].linear.kernel.astype(dtype)
    prior = dyn.prior.layers[0].linear.kernel.astype(dtype)
    side_by_side = lambda *x: jnp.concatenate(x, 1)
    shared = jnp.concatenate([kernels['hidden_shared'], kernels['hidden_action']])
    return {
        'deter_out': side_by_side(prior, kernels['deter_in'], first[: dyn.deter]),
        'stoch_out': side_by_side(kernels['stoch_in'], first[dyn.deter :]),
        'action_in': dyn.action_in.linear.kernel.astype(dtype),
        'hidden_own': kernels['hidden_own'],
        'hidden_shared': shared,
        'gru': kernels['gru'],
    }
