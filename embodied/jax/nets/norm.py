"""Normalization over the last axis."""

import equinox as eqx
import jax
import jax.numpy as jnp

__all__ = ['RMSNorm', 'mean_square', 'normalize']

EPS = 1e-4


class RMSNorm(eqx.Module):
    """x / sqrt(mean(x^2) + eps) * scale, in float32."""

    scale: jax.Array

    def __init__(self, size: int):
        self.scale = jnp.ones(size, jnp.float32)

    def __call__(self, x: jax.Array) -> jax.Array:
        return normalize(x, self.scale, mean_square(x))


def mean_square(x: jax.Array) -> jax.Array:
    """[..., D] -> [..., 1] float32."""
    return jnp.square(x.astype(jnp.float32)).mean(-1, keepdims=True)


def normalize(x: jax.Array, scale: jax.Array, power: jax.Array) -> jax.Array:
    """x with the mean square that it is known to have divided out, times scale."""
    x32 = x.astype(jnp.float32)
    return (x32 * jax.lax.rsqrt(power + EPS) * scale).astype(x.dtype)
