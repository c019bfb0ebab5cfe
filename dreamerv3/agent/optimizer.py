"""LaProp or Adam with clipping per tensor and warm-up, as one optax transformation.

It works on vectors: all parameters one after the other, as `Layout` places them.
"""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from embodied.jax.layout import Layout

__all__ = ['clip_by_parameter_norm', 'make_optimizer']


def make_optimizer(
    config: Any, layout: Layout, behavior: int
) -> optax.GradientTransformation:
    """Clips gradients, normalizes them and scales them by the learning rate.

    behavior: position in the vector from which on parameters are those of policy and
    value, which may have a learning rate and an epsilon of their own.
    """
    part = lambda own, other: _by_part(layout, behavior, own, other)

    def chain(eps: float | jax.Array) -> optax.GradientTransformation:
        return optax.chain(
            clip_by_parameter_norm(config.agc, config.pmin, layout),
            *_normalize(config, eps),
            optax.scale_by_learning_rate(warmup(config.lr, config.warmup)),
        )

    def update(grads: jax.Array, state: Any, params: Any) -> tuple[jax.Array, Any]:
        eps = part(config.eps, config.behavior_eps)
        updates, state = chain(eps).update(grads, state, params)
        return updates * part(1.0, config.behavior_lr / config.lr), state

    return optax.GradientTransformation(chain(config.eps).init, update)


def _normalize(
    config: Any, eps: float | jax.Array
) -> tuple[optax.GradientTransformation, ...]:
    """LaProp averages gradients that are already normalized, Adam the raw ones."""
    if config.kind == 'adam':
        return (optax.scale_by_adam(config.beta1, config.beta2, eps),)
    # The order matters: divide by the second moment, then average.
    rms = optax.scale_by_rms(config.beta2, eps, eps_in_sqrt=False, bias_correction=True)
    return rms, optax.ema(config.beta1, debias=True)


def _by_part(
    layout: Layout, behavior: int, own: float, other: float
) -> float | jax.Array:
    """`own` for the world model and `other` for policy and value, if it is not 0."""
    if not other or other == own:
        return own
    return jnp.where(jnp.arange(layout.size) < behavior, own, other)


def warmup(rate: float, updates: int) -> optax.Schedule:
    """Rises linearly from 0 at the first update."""
    if not updates:
        return optax.constant_schedule(rate)
    return optax.linear_schedule(0.0, rate, updates)


def clip_by_parameter_norm(
    clip: float, pmin: float, layout: Layout
) -> optax.GradientTransformation:
    """Scales each gradient so that |g| <= clip * max(pmin, |p|), norms per tensor.

    A clip of 0 leaves gradients as they are.
    """
    if not clip:
        return optax.identity()

    def update(grads: jax.Array, state: Any, params: Any) -> tuple[jax.Array, Any]:
        limits = clip * jnp.maximum(pmin, layout.norms(params))
        factors = 1 / jnp.maximum(1, layout.norms(grads) / limits)
        return layout.scale(grads, factors), state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)
