"""Initial values of kernels."""

import jax
import jax.numpy as jnp

__all__ = ['kernel']

# A normal truncated at two standard deviations has 1 / 1.1368 of its width left.
TRUNCATION = 1.1368


def kernel(
    key: jax.Array, shape: tuple[int, ...], fan_in: int, scale: float = 1.0
) -> jax.Array:
    """Truncated normal with variance scale^2 / fan_in, float32."""
    std = scale * TRUNCATION * (1 / fan_in) ** 0.5
    return std * jax.random.truncated_normal(key, -2.0, 2.0, shape, jnp.float32)
