"""LaProp or Adam with clipping per tensor and warm-up, as one optax transformation.

It works on vectors: all parameters one after the other, as `Layout` places them.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from embodied.jax.layout import Layout

__all__ = ['Rates', 'clip_by_parameter_norm', 'make_optimizer']


class Rates(NamedTuple):
    """How a parameter is trained."""

    lr: float  # learning rate, after the warm-up
    eps: float  # added to the root of the second moment
    agc: float  # largest norm of its gradient, relative to its own; 0: any


def make_optimizer(
    config: Any, layout: Layout, rates: Sequence[Rates] | None = None
) -> optax.GradientTransformation:
    """Clips gradients, normalizes them and scales them by the learning rate.

    rates: of each tensor, in the order of the layout; None is as config says for all.
    """
    usual = Rates(config.lr, config.eps, config.agc)
    lrs, epsilons, clips = zip(*(rates or [usual] * layout.tensors), strict=True)
    base = config.lr or max(lrs)

    def chain(eps: float | jax.Array) -> optax.GradientTransformation:
        return optax.chain(
            clip_by_parameter_norm(_one_or_all(clips), config.pmin, layout),
            *_normalize(config, eps),
            optax.scale_by_learning_rate(warmup(base, config.warmup)),
        )

    def update(grads: jax.Array, state: Any, params: Any) -> tuple[jax.Array, Any]:
        eps = _one_or_all(epsilons)
        spread = layout.spread(eps) if isinstance(eps, np.ndarray) else eps
        updates, state = chain(spread).update(grads, state, params)
        if set(lrs) != {base}:
            factors = (np.array(lrs) / base).astype(np.float32)
            updates = layout.scale(updates, factors)
        return updates, state

    return optax.GradientTransformation(chain(config.eps).init, update)


def _one_or_all(values: Sequence[float]) -> float | np.ndarray:
    """A value that all tensors share, or that of each."""
    return np.array(values, np.float32) if len(set(values)) > 1 else values[0]


def _normalize(
    config: Any, eps: float | jax.Array
) -> tuple[optax.GradientTransformation, ...]:
    """LaProp averages gradients that are already normalized, Adam the raw ones."""
    if config.kind == 'adam':
        return (optax.scale_by_adam(config.beta1, config.beta2, eps),)
    # The order matters: divide by the second moment, then average.
    rms = optax.scale_by_rms(config.beta2, eps, eps_in_sqrt=False, bias_correction=True)
    return rms, optax.ema(config.beta1, debias=True)


def warmup(rate: float, updates: int) -> optax.Schedule:
    """Rises linearly from 0 at the first update."""
    if not updates:
        return optax.constant_schedule(rate)
    return optax.linear_schedule(0.0, rate, updates)


def clip_by_parameter_norm(
    clip: float | np.ndarray, pmin: float, layout: Layout
) -> optax.GradientTransformation:
    """Scales each gradient so that |g| <= clip * max(pmin, |p|), norms per tensor.

    clip: for all tensors, or of each. A clip of 0 leaves gradients as they are.
    """
    if not np.any(clip):
        return optax.identity()
    if isinstance(clip, np.ndarray):
        clip = np.where(clip == 0, np.inf, clip)

    def update(grads: jax.Array, state: Any, params: Any) -> tuple[jax.Array, Any]:
        limits = clip * jnp.maximum(pmin, layout.norms(params))
        factors = 1 / jnp.maximum(1, layout.norms(grads) / limits)
        return layout.scale(grads, factors), state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)
