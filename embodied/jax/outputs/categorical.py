"""Categorical variables, with an optional share of uniform probability."""

import copy

import jax
import jax.numpy as jnp

__all__ = ['Categorical', 'first_largest']

ROUNDING = 1e-5  # differences of sampled log-probabilities that mean nothing


class Categorical:
    """Categorical variables given by logits [..., *event, classes].

    Log-probabilities, entropies and divergences are summed over the event axes.
    """

    def __init__(self, logits: jax.Array, unimix: float = 0.0, event_rank: int = 0):
        logits = logits.astype(jnp.float32)
        self.axes = tuple(range(-event_rank, 0))
        if unimix:
            probs = jax.nn.softmax(logits, -1)
            probs = (1 - unimix) * probs + unimix / logits.shape[-1]
            self.logp_all = jnp.log(probs)
        else:
            self.logp_all = jax.nn.log_softmax(logits, -1)

    def detach(self) -> 'Categorical':
        """The same distribution without gradients."""
        detached = copy.copy(self)
        detached.logp_all = jax.lax.stop_gradient(self.logp_all)
        return detached

    @property
    def probs(self) -> jax.Array:
        return jnp.exp(self.logp_all)

    def pred(self) -> jax.Array:
        """Most likely class indices [..., *event]."""
        return self.logp_all.argmax(-1)

    def sample(self, gumbel: jax.Array) -> jax.Array:
        """Class indices [..., *event]; gumbel: noise of the shape of the logits."""
        return (self.logp_all + gumbel).argmax(-1)

    def draw(self, gumbel: jax.Array) -> jax.Array:
        """One-hot samples like the logits, float32, without gradient."""
        return first_largest(jax.lax.stop_gradient(self.logp_all + gumbel))

    def sample_onehot(self, gumbel: jax.Array) -> jax.Array:
        """One-hot samples like the logits, with the gradient of the probabilities."""
        probs = self.probs
        return jax.lax.stop_gradient(self.draw(gumbel) - probs) + probs

    def logp(self, index: jax.Array) -> jax.Array:
        # A sum with a one-hot mask: gathers are slow backwards on accelerators.
        classes = self.logp_all.shape[-1]
        onehot = jax.nn.one_hot(index.astype(jnp.int32), classes)
        return (self.logp_all * onehot).sum(-1).sum(self.axes)

    def loss(self, index: jax.Array) -> jax.Array:
        return -self.logp(index)

    def entropy(self) -> jax.Array:
        return -(self.probs * self.logp_all).sum(-1).sum(self.axes)

    def kl(self, other: 'Categorical') -> jax.Array:
        """KL(self || other) [...]."""
        return (self.probs * (self.logp_all - other.logp_all)).sum(-1).sum(self.axes)


def first_largest(x: jax.Array) -> jax.Array:
    """The one-hot float32 of x.argmax(-1), or of the first that is as good as that.

    Unlike with indices, a GPU does all of it in one operation, and that of x as well.
    Exact equality would not do: compilers may compute x twice, for its maximum and to
    compare with it, and round differently; then nothing would be the largest.
    """
    countdown = jnp.arange(x.shape[-1], 0, -1, dtype=jnp.float32)
    ranks = jnp.where(x >= x.max(-1, keepdims=True) - ROUNDING, countdown, 0)
    return (ranks == ranks.max(-1, keepdims=True)).astype(jnp.float32)
