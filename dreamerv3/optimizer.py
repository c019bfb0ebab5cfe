"""LaProp with gradient clipping per tensor and warm-up, as one optax transformation."""

from typing import Any

import jax
import jax.numpy as jnp
import optax

__all__ = ['clip_by_parameter_norm', 'make_optimizer']


def make_optimizer(config: Any) -> optax.GradientTransformation:
    """Order matters: clip, divide by the second moment, average, scale.

    LaProp averages gradients that are already normalized, Adam the raw ones.
    """
    return optax.chain(
        clip_by_parameter_norm(config.agc, config.pmin),
        optax.scale_by_rms(
            config.beta2, config.eps, eps_in_sqrt=False, bias_correction=True
        ),
        optax.ema(config.beta1, debias=True),
        optax.scale_by_learning_rate(warmup(config.lr, config.warmup)),
    )


def warmup(rate: float, updates: int) -> optax.Schedule:
    """Rises linearly from 0 at the first update."""
    if not updates:
        return optax.constant_schedule(rate)
    return optax.linear_schedule(0.0, rate, updates)


def clip_by_parameter_norm(clip: float, pmin: float) -> optax.GradientTransformation:
    """Scales each gradient so that |g| <= clip * max(pmin, |p|), norms per tensor."""

    def clip_one(grad: jax.Array, param: jax.Array) -> jax.Array:
        limit = clip * jnp.maximum(pmin, jnp.linalg.norm(param.ravel()))
        return grad / jnp.maximum(1, jnp.linalg.norm(grad.ravel()) / limit)

    def update(grads: Any, state: Any, params: Any) -> tuple[Any, Any]:
        return jax.tree.map(clip_one, grads, params), state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)
