"""Initial values: all kernels of a network come out of one random draw.

Drawing each kernel by itself compiles the sampling code once per kernel, which took
24 s for a small agent; one draw that is cut in pieces takes one second.
"""

import math
from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp

__all__ = ['Init', 'build']

# A normal truncated at two standard deviations has 1 / 1.1368 of its width left.
TRUNCATION = 1.1368

T = TypeVar('T')


class Init:
    """Hands out kernels one after the other; without values it only counts them."""

    def __init__(self, values: jax.Array | None = None):
        self._values = values
        self.used = 0

    def kernel(
        self, shape: tuple[int, ...], fan_in: int, scale: float = 1.0
    ) -> jax.Array:
        """Truncated normal with variance scale^2 / fan_in, float32."""
        start, self.used = self.used, self.used + math.prod(shape)
        if self._values is None:
            return jnp.zeros(shape, jnp.float32)
        std = scale * TRUNCATION * (1 / fan_in) ** 0.5
        return std * self._values[start : self.used].reshape(shape)


def build(make: Callable[[Init], T], key: jax.Array) -> T:
    """The network that make(init) constructs, with kernels drawn by the key."""
    counter = Init()
    jax.eval_shape(lambda: make(counter))
    shape = (counter.used,)
    return make(Init(jax.random.truncated_normal(key, -2.0, 2.0, shape, jnp.float32)))
