"""Scalars of unknown scale as a distribution over fixed bins."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .transforms import symlog

__all__ = ['SymlogTwoHot', 'TwoHot', 'symexp_bins', 'symlog_bins']

RANGE = 20.0  # bins reach from symexp(-20) to symexp(20)


def symexp_bins(count: int) -> np.ndarray:
    """symexp(linspace(-20, 20, count)) [count], exactly symmetric around 0."""
    if count % 2:
        half = np.linspace(-RANGE, 0, count // 2 + 1, dtype=np.float32)
        half = -np.expm1(-half)
        return np.concatenate([half, -half[:-1][::-1]])
    half = np.linspace(-RANGE, RANGE, count, dtype=np.float32)[: count // 2]
    half = -np.expm1(-half)
    return np.concatenate([half, -half[::-1]])


def symlog_bins(count: int) -> np.ndarray:
    """linspace(-20, 20, count) [count], exactly symmetric around 0."""
    bins = np.linspace(-RANGE, RANGE, count, dtype=np.float32)
    return (bins - bins[::-1]) / 2


class TwoHot:
    """A scalar given by logits [..., bins] over symmetric bin values."""

    def __init__(self, logits: jax.Array, bins: np.ndarray):
        self.logits = logits.astype(jnp.float32)
        self.bins = bins

    def __getitem__(self, index: Any) -> 'TwoHot':
        return type(self)(self.logits[index], self.bins)

    def pred(self) -> jax.Array:
        """Mean [...], summed in symmetric pairs: uniform logits give exactly 0."""
        return self._mean(self.bins)

    def smooth_pred(self) -> jax.Array:
        """symexp(sum p symlog(bins)) [...], a prediction to be differentiated.

        The mean is not: the outer bins are so large that a probability of 1e-8 in one
        of them dominates its gradient.
        """
        return _open_symexp(self._mean(np.sign(self.bins) * np.log1p(abs(self.bins))))

    def _mean(self, values: np.ndarray) -> jax.Array:
        """sum p values [...]; values: [bins], symmetric as the bins are."""
        probs = jax.nn.softmax(self.logits, -1)
        half = len(values) // 2
        # The difference first: compilers may fuse a product into a sum, and then two
        # large ones of opposite sign no longer cancel.
        excess = probs[..., -half:] - probs[..., :half][..., ::-1]
        return (excess * values[-half:]).sum(-1)

    def loss(self, target: jax.Array) -> jax.Array:
        """Cross entropy to the two-hot encoding of target [...]."""
        return -(self.encode(target) * jax.nn.log_softmax(self.logits, -1)).sum(-1)

    def encode(self, target: jax.Array) -> jax.Array:
        """Weights [..., bins] on the two bins around target, linear in raw values.

        The weight of a bin is a tent: 1 at its value, 0 at both neighbors.
        """
        bins = self.bins
        below = np.concatenate([2 * bins[:1] - bins[1:2], bins[:-1]])
        above = np.concatenate([bins[1:], 2 * bins[-1:] - bins[-2:-1]])
        target = jnp.clip(target.astype(jnp.float32), bins[0], bins[-1])[..., None]
        rising = (target - below) / (bins - below)
        falling = (above - target) / (above - bins)
        return jnp.clip(jnp.minimum(rising, falling), 0, 1)


class SymlogTwoHot(TwoHot):
    """A scalar given by logits [..., bins] over symmetric values of its symlog.

    The two-hot weights are linear in symlog(target), and the prediction is
    symexp(sum p bins), which can be differentiated.
    """

    def pred(self) -> jax.Array:
        return _open_symexp(self._mean(self.bins))

    def smooth_pred(self) -> jax.Array:
        return self.pred()

    def encode(self, target: jax.Array) -> jax.Array:
        return super().encode(symlog(target.astype(jnp.float32)))


def _open_symexp(x: jax.Array) -> jax.Array:
    """symexp whose gradient at 0 is 1; that of outputs.symexp vanishes there."""
    return jnp.where(x < 0, -jnp.expm1(-x), jnp.expm1(x))
