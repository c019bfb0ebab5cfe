"""Scalars and vectors: Bernoulli, normal and squared-error outputs."""

import math

import jax
import jax.numpy as jnp

from .transforms import symexp, symlog

__all__ = ['Bernoulli', 'Normal', 'SquaredError', 'SymlogSquaredError']


class Bernoulli:
    """logit [...]; targets may be probabilities."""

    def __init__(self, logit: jax.Array):
        self.logit = logit.astype(jnp.float32)

    def prob(self) -> jax.Array:
        return jax.nn.sigmoid(self.logit)

    def loss(self, target: jax.Array) -> jax.Array:
        log_one = jax.nn.log_sigmoid(self.logit)
        log_zero = jax.nn.log_sigmoid(-self.logit)
        return -(target * log_one + (1 - target) * log_zero)


class Normal:
    """Independent normals, mean and std [..., event]; event axes are summed."""

    def __init__(self, mean: jax.Array, std: jax.Array, event_rank: int = 1):
        self.mean = mean.astype(jnp.float32)
        self.std = std.astype(jnp.float32)
        self.axes = tuple(range(-event_rank, 0))

    def pred(self) -> jax.Array:
        return self.mean

    def sample(self, noise: jax.Array) -> jax.Array:
        return self.mean + self.std * noise

    def logp(self, value: jax.Array) -> jax.Array:
        scaled = (value.astype(jnp.float32) - self.mean) / self.std
        each = -0.5 * jnp.square(scaled) - jnp.log(self.std)
        return (each - 0.5 * math.log(2 * math.pi)).sum(self.axes)

    def entropy(self) -> jax.Array:
        each = jnp.log(self.std) + 0.5 * math.log(2 * math.pi * math.e)
        return each.sum(self.axes)


class SquaredError:
    """|pred - target|^2, summed over the event axes."""

    def __init__(self, mean: jax.Array, event_rank: int):
        self.mean = mean.astype(jnp.float32)
        self.axes = tuple(range(-event_rank, 0))

    def pred(self) -> jax.Array:
        return self.mean

    def loss(self, target: jax.Array) -> jax.Array:
        return jnp.square(self.mean - target.astype(jnp.float32)).sum(self.axes)


class SymlogSquaredError(SquaredError):
    """|pred - symlog(target)|^2; predictions come back in the target's scale."""

    def pred(self) -> jax.Array:
        return symexp(self.mean)

    def loss(self, target: jax.Array) -> jax.Array:
        return super().loss(symlog(target.astype(jnp.float32)))
