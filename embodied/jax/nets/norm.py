"""Normalization over the last axis."""

import equinox as eqx
import jax
import jax.numpy as jnp

__all__ = ['RMSNorm']

EPS = 1e-4


class RMSNorm(eqx.Module):
    """x / sqrt(mean(x^2) + eps) * scale, in float32."""

    scale: jax.Array

    def __init__(self, size: int):
        self.scale = jnp.ones(size, jnp.float32)

    def __call__(self, x: jax.Array) -> jax.Array:
        x32 = x.astype(jnp.float32)
        power = jnp.square(x32).mean(-1, keepdims=True)
        return (x32 * jax.lax.rsqrt(power + EPS) * self.scale).astype(x.dtype)
