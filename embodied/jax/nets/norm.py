"""Normalization over the last axis."""

import equinox as eqx
import jax
import jax.numpy as jnp

__all__ = ['RMSNorm', 'normalized_silu']

EPS = 1e-4


class RMSNorm(eqx.Module):
    """x / sqrt(mean(x^2) + eps) * scale, in float32."""

    scale: jax.Array

    def __init__(self, size: int):
        self.scale = jnp.ones(size, jnp.float32)

    def __call__(self, x: jax.Array) -> jax.Array:
        return normalize(x, self.scale)


class NormalizedSilu:
    """SiLU of a norm, silu(normalize(x, scale)), as a recurrence.Sloped."""

    def __call__(self, x: jax.Array, scale: jax.Array) -> jax.Array:
        return jax.nn.silu(normalize(x, scale))

    def slope(self, x: jax.Array, scale: jax.Array) -> tuple[jax.Array, jax.Array]:
        x32 = x.astype(jnp.float32)
        inverse = jax.lax.rsqrt(mean_square(x32) + EPS)
        unit = x32 * inverse
        sigmoid = jax.nn.sigmoid(unit * scale)
        outer = sigmoid * (1 + unit * scale * (1 - sigmoid))
        return outer * scale * inverse, unit

    def pull(self, slope: tuple[jax.Array, jax.Array], grad: jax.Array) -> jax.Array:
        # x also counts in its mean square, which takes back what lies along it.
        steep, unit = slope
        direct = grad.astype(jnp.float32) * steep
        along = (direct * unit).mean(-1, keepdims=True)
        return (direct - unit * along).astype(grad.dtype)


normalized_silu = NormalizedSilu()


def normalize(x: jax.Array, scale: jax.Array) -> jax.Array:
    """x / sqrt(mean(x^2) + eps) * scale over the last axis, computed in float32."""
    x32 = x.astype(jnp.float32)
    return (x32 * jax.lax.rsqrt(mean_square(x32) + EPS) * scale).astype(x.dtype)


def mean_square(x32: jax.Array) -> jax.Array:
    """[..., D] -> [..., 1]."""
    return jnp.square(x32).mean(-1, keepdims=True)
