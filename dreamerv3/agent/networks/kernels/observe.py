"""The loops of RSSM.observe as kernels: one launch each, forward and backward.

Their operands are in the order of the parameters in the .cu files.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ..rssm import State
from .cuda_launch import Launch, Shape, launch

__all__ = ['ROWS', 'ObserveLoops', 'ObserveShape']

ROWS = 16  # that a cluster works on


@dataclasses.dataclass(frozen=True)
class ObserveShape(Shape):
    """Sizes that both kernels are made for."""

    batch: int

    @property
    def clusters(self) -> int:
        return self.batch // ROWS

    def macros(self) -> dict[str, str]:
        return {**super().macros(), 'BATCH': str(self.batch)}


class ObserveLoops(NamedTuple):
    """The loops of recurrence.scan over the step of RSSM.observe."""

    shape: ObserveShape
    launch: Launch = launch

    def forward(
        self, params: Any, carry: Any, xs: Any, fixed: Any
    ) -> tuple[Any, jax.Array]:
        """Carries and logits [T, ...] of all steps."""
        (state, drive), shape = carry, self.shape
        operands = (
            *self._matrices(params),
            *self._vectors(params),
            *(state.deter, state.stoch, drive),
            *(*xs, *fixed),
        )
        steps = (shape.steps, shape.batch)
        groups = (*steps, shape.stoch, shape.classes)
        half = state.deter.dtype
        results = (
            jax.ShapeDtypeStruct((*steps, shape.deter), half),
            jax.ShapeDtypeStruct(groups, half),
            jax.ShapeDtypeStruct((*steps, shape.hidden), half),
            jax.ShapeDtypeStruct(groups, jnp.float32),
        )
        deter, stoch, drives, logits = self.launch(
            'observe_forward', shape, operands, results
        )
        return (State(deter, stoch), drives), logits

    def backward(
        self, params: Any, grads: Any, before: Any, known: Any, fixed: Any
    ) -> tuple[Any, Any]:
        """Gradients of the carry before the first step, and of all after it [T, ...].

        grads: of carries and logits. before: carries before each step. known: values
        and slopes of each step by name, as recurrence.scan collects them.
        """
        (grad_state, grad_drive), grad_logit = grads
        (state, _), (reset, _), shape = before, fixed, self.shape
        slope = lambda name: known[name][1]
        operands = (
            *self._matrices(params),
            params[0].gru.bias.astype(jnp.float32),
            *(grad_state.deter, grad_state.stoch, grad_drive, grad_logit),
            *(state.deter, reset, known['gru'][0], slope('sample')),
            *(*slope('inputs'), *slope('hidden'), *slope('post')),
        )
        half = state.deter.dtype
        sizes = ((shape.deter,), (shape.stoch, shape.classes), (shape.hidden,))
        results = [
            jax.ShapeDtypeStruct((*lead, shape.batch, *size), half)
            for lead in ((), (shape.steps,))
            for size in sizes
        ]
        outs = self.launch('observe_backward', shape, operands, results)
        carry = lambda deter, stoch, drive: (State(deter, stoch), drive)
        return carry(*outs[:3]), carry(*outs[3:])

    def _matrices(self, params: Any) -> tuple[jax.Array, ...]:
        kernels = params[1]
        names = ('stoch_in', 'hidden_own', 'hidden_shared', 'gru', 'deter_out')
        return tuple(kernels[name] for name in (*names, 'post_logit'))

    def _vectors(self, params: Any) -> list[jax.Array]:
        own = params[0]
        layers = (own.deter_in, own.stoch_in)
        vectors = (
            jnp.stack([x.linear.bias for x in layers]),
            jnp.stack([x.norm.scale for x in layers]),
            own.hidden_norm.scale,
            own.gru.bias,
            own.post.norm.scale,
            own.post_logit.bias,
        )
        return [x.astype(jnp.float32) for x in vectors]
