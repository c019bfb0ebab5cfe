"""Returns and their normalization."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

__all__ = ['Range', 'lambda_return', 'update_range']


def lambda_return(
    reward: jax.Array,
    cont: jax.Array,
    mix: jax.Array | float,
    boot: jax.Array,
) -> jax.Array:
    """All [..., T] -> returns [..., T - 1].

    R_t = r_{t+1} + c_{t+1} ((1 - mix_{t+1}) boot_{t+1} + mix_{t+1} R_{t+1}),
    R_{T-1} = boot_{T-1}.
    """
    mix = jnp.broadcast_to(mix, reward.shape)
    one_step = reward + cont * (1 - mix) * boot
    carried = cont * mix

    def step(later, inputs):
        one_step, carried = inputs
        value = one_step + carried * later
        return value, value

    inputs = jax.tree.map(
        lambda x: jnp.moveaxis(x[..., 1:], -1, 0), (one_step, carried)
    )
    _, returns = jax.lax.scan(step, boot[..., -1], inputs, reverse=True, unroll=8)
    return jnp.moveaxis(returns, 0, -1)


class Range(NamedTuple):
    """Moving average of a low and a high percentile, both start at 0."""

    low: jax.Array
    high: jax.Array


def update_range(state: Range, values: jax.Array, config: Any) -> Range:
    """Moves the range by config.rate towards the percentiles of values."""
    levels = jnp.array([config.low, config.high])
    low, high = jnp.percentile(values, levels)
    move = lambda old, new: (1 - config.rate) * old + config.rate * new
    return Range(move(state.low, low), move(state.high, high))
