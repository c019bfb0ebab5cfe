"""The loop of behavior.imagine as a kernel: policy and model for all steps at once."""

import dataclasses
from typing import Any

import elements
import jax
import jax.numpy as jnp

from ..rssm import State
from .cuda_launch import Launch, Shape, float_literal, launch

__all__ = ['ImagineLoop', 'ImagineShape']

ROOM = 32  # numbers of an action vector
TILE = 16  # rows that a product takes at least


@dataclasses.dataclass(frozen=True)
class ImagineShape(Shape):
    """Sizes that the kernel is made for."""

    rows: int  # imagined at the same time
    discrete: bool
    width: int  # of the action: its classes or numbers
    policy_unimix: float
    minstd: float
    maxstd: float

    @property
    def tall(self) -> int:
        """Tiles of a cluster: as many as one has room for."""
        return next(n for n in (4, 2, 1) if self.rows % (TILE * n) == 0)

    @property
    def clusters(self) -> int:
        return self.rows // (TILE * self.tall)

    def macros(self) -> dict[str, str]:
        return {
            **super().macros(),
            'N': str(self.rows),
            'TALL': str(self.tall),
            'DISCRETE': str(int(self.discrete)),
            'WIDTH': str(self.width),
            'POLICY_UNIMIX': float_literal(self.policy_unimix),
            'MINSTD': float_literal(self.minstd),
            'MAXSTD': float_literal(self.maxstd),
        }


@dataclasses.dataclass(frozen=True)
class ImagineLoop:
    """Replaces the loop of behavior.imagine, for one action key."""

    shape: ImagineShape
    key: str
    space: elements.Space
    launch: Launch = launch

    def __call__(
        self, dyn: Any, policy: Any, start: State, noise: tuple[jax.Array, Any]
    ) -> tuple[State, dict[str, jax.Array]]:
        """States [H + 1, N, ...] and actions [H, N, ...]; arguments as of imagine."""
        shape, dtype = self.shape, start.deter.dtype
        state_noise, action_noise = noise
        lead = (shape.steps, shape.rows)
        operands = (
            *self._matrices(dyn, policy, dtype),
            *self._vectors(dyn, policy, dtype),
            *(start.deter, start.stoch, *self._first(dyn, policy, start.deter)),
            *(state_noise, action_noise[self.key].reshape(*lead, shape.width)),
        )
        after = (shape.steps + 1, shape.rows)
        number = jnp.int32 if shape.discrete else jnp.float32
        action = lead if shape.discrete else (*lead, *self.space.shape)
        results = (
            jax.ShapeDtypeStruct((*after, shape.deter), dtype),
            jax.ShapeDtypeStruct((*after, shape.stoch, shape.classes), dtype),
            jax.ShapeDtypeStruct(action, number),
        )
        deter, stoch, drawn = self.launch('imagine', shape, operands, results)
        return State(deter, stoch), {self.key: drawn}

    def _matrices(self, dyn: Any, policy: Any, dtype: Any) -> list[jax.Array]:
        kernels = dyn.kernels(dtype, dense=False)
        first, second, third = (x.linear.kernel for x in policy.mlp.layers)
        prior = [x.linear.kernel for x in dyn.prior.layers]
        join = lambda *x: jnp.concatenate([a.astype(dtype) for a in x], 1)
        action_in = dyn.action_in.linear.kernel
        room = ((0, ROOM - len(action_in)), (0, 0))
        hidden = (kernels['hidden_shared'], kernels['hidden_action'])
        matrices = (
            join(kernels['stoch_in'], first[dyn.deter :]),
            *(second, third, self._head(policy, 'kernel')),
            jnp.pad(action_in, room),
            jnp.concatenate(hidden),
            *(kernels['hidden_own'], kernels['gru']),
            join(prior[0], kernels['deter_in'], first[: dyn.deter]),
            *(prior[1], dyn.prior_logit.kernel),
        )
        return [x.astype(dtype) for x in matrices]

    def _head(self, policy: Any, part: str) -> jax.Array:
        """Logits, or means and standard deviations, each with ROOM columns."""
        discrete = self.shape.discrete
        groups = (policy.logits,) if discrete else (policy.means, policy.stds)
        parts = [getattr(x[self.key], part) for x in groups]
        parts += [jnp.zeros_like(parts[0])] * discrete
        grow = lambda x: [(0, 0)] * (x.ndim - 1) + [(0, ROOM - x.shape[-1])]
        return jnp.concatenate([jnp.pad(x, grow(x)) for x in parts], -1)

    def _vectors(self, dyn: Any, policy: Any, dtype: Any) -> list[jax.Array]:
        layers = (dyn.deter_in, dyn.stoch_in, dyn.action_in)
        layers = (*layers, *policy.mlp.layers, *dyn.prior.layers)
        # Biases are added in the compute dtype, norms are scaled in float32.
        bias = lambda x: x.astype(dtype).astype(jnp.float32)
        return [
            jnp.stack([y for x in layers for y in (bias(x.linear.bias), x.norm.scale)]),
            bias(self._head(policy, 'bias')),
            bias(dyn.hidden.bias),
            dyn.hidden_norm.scale,
            bias(dyn.gru.bias),
            bias(dyn.prior_logit.bias),
        ]

    def _first(self, dyn: Any, policy: Any, deter: jax.Array) -> list[jax.Array]:
        """Products of the first state, for the model and for the policy."""
        first = policy.mlp.layers[0].linear.kernel[: dyn.deter]
        kernel = jnp.concatenate([dyn.deter_in.linear.kernel, first], 1)
        return jnp.split(deter @ kernel.astype(deter.dtype), 2, -1)
