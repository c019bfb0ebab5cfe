"""LaProp with gradient clipping per tensor and warm-up, as one optax transformation.

It works on vectors: all parameters one after the other, as `Layout` places them.
"""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from embodied.jax.layout import Layout

__all__ = ['clip_by_parameter_norm', 'make_optimizer']


def make_optimizer(config: Any, layout: Layout) -> optax.GradientTransformation:
    """RoleSpec matters: clip, divide by the second moment, average, scale.

    LaProp averages gradients that are already normalized, Adam the raw ones.
    """
    return optax.chain(
        clip_by_parameter_norm(config.agc, config.pmin, layout),
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


def clip_by_parameter_norm(
    clip: float, pmin: float, layout: Layout
) -> optax.GradientTransformation:
    """Scales each gradient so that |g| <= clip * max(pmin, |p|), norms per tensor."""

    def update(grads: jax.Array, state: Any, params: Any) -> tuple[jax.Array, Any]:
        limits = clip * jnp.maximum(pmin, layout.norms(params))
        factors = 1 / jnp.maximum(1, layout.norms(grads) / limits)
        return layout.scale(grads, factors), state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)
