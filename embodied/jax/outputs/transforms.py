"""Squashing of values of unknown scale."""

import jax
import jax.numpy as jnp

__all__ = ['symexp', 'symlog']


def symlog(x: jax.Array) -> jax.Array:
    """sign(x) log(1 + |x|)."""
    return jnp.sign(x) * jnp.log1p(jnp.abs(x))


def symexp(x: jax.Array) -> jax.Array:
    """sign(x) (exp|x| - 1), the inverse of symlog."""
    return jnp.sign(x) * jnp.expm1(jnp.abs(x))
