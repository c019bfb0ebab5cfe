"""Redundancy reduction instead of a decoder.

A linear projection of the state predicts the encoder's tokens: across the batch, each
prediction correlates with its own token and with no other. docs/barlow.md says more.
"""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from embodied.jax import nets

from ..model import Dreamer, Nets, Seen
from ..networks.rssm import State
from .additions import with_own

__all__ = ['Barlow', 'cross_correlation', 'redundancy_loss']

NAME = 'barlow'  # of the parameters, the loss and the metrics

sg = jax.lax.stop_gradient


class Projection(eqx.Module):
    """[..., inp] -> [..., out]. Its output is centered, so a bias would do nothing."""

    kernel: jax.Array

    def __init__(self, init: nets.Init, inp: int, out: int):
        self.kernel = init.kernel((inp, out), inp)

    def __call__(self, x: jax.Array) -> jax.Array:
        return x @ self.kernel.astype(x.dtype)


class NoDecoder(eqx.Module):
    """In the place of a decoder: predicts no observation."""

    def __call__(self, states: State) -> dict[str, Any]:
        return {}

    def losses(
        self, outs: dict[str, Any], batch: dict[str, jax.Array]
    ) -> dict[str, jax.Array]:
        return {}


class Onlooker(eqx.Module):
    """A decoder that learns from states and leaves them as they are."""

    decoder: Any

    def __call__(self, states: State) -> dict[str, Any]:
        return self.decoder(sg(states))

    def losses(
        self, outs: dict[str, Any], batch: dict[str, jax.Array]
    ) -> dict[str, jax.Array]:
        return self.decoder.losses(outs, batch)


class Barlow(Dreamer):
    """Goes in front of another agent, whose decoder it takes or detaches."""

    def make_nets(self, init: nets.Init) -> Nets:
        made = super().make_nets(init)
        if not self.config.barlow.decoder:
            none: Any = NoDecoder()
            made = dataclasses.replace(made, dec=none)
        return with_own(made, NAME, Projection(init, self.feat_size, made.enc.size))

    @property
    def loss_scales(self) -> dict[str, float]:
        return {**super().loss_scales, NAME: self.config.barlow.scale}

    def world_losses(
        self, params: Nets, batch: dict[str, jax.Array], seen: Seen, key: jax.Array
    ) -> tuple[dict[str, jax.Array], dict[str, jax.Array]]:
        onlooker: Any = Onlooker(params.dec)
        beside = dataclasses.replace(params, dec=onlooker)
        losses, metrics = super().world_losses(beside, batch, seen, key)
        config = self.config.barlow
        predicted = params.own[NAME](seen.states.feat)
        matrix = cross_correlation(predicted, sg(seen.tokens), config.eps)
        loss = redundancy_loss(matrix, config.off_diagonal)
        # One number for the batch, which no single step has a part of.
        losses[NAME] = jnp.broadcast_to(loss, batch['reward'].shape)
        metrics[f'{NAME}/correlation'] = jnp.diagonal(matrix).mean()
        return losses, metrics


def cross_correlation(predicted: jax.Array, target: jax.Array, eps: float) -> jax.Array:
    """[..., I], [..., J] -> [I, J], over all leading axes.

    eps: added to each variance, so that what never changes correlates with nothing.
    """
    x, y = (_standardized(part, eps) for part in (predicted, target))
    highest = jax.lax.Precision.HIGHEST  # float32 also where it is not the usual
    return jnp.matmul(x.T, y, precision=highest) / len(x)


def redundancy_loss(matrix: jax.Array, off_diagonal: float) -> jax.Array:
    """Squared distance from the identity; off_diagonal: weight of what is beside it."""
    diagonal = jnp.diagonal(matrix)
    beside = jnp.square(matrix).sum() - jnp.square(diagonal).sum()
    return jnp.square(1 - diagonal).sum() + off_diagonal * beside


def _standardized(x: jax.Array, eps: float) -> jax.Array:
    """[..., I] -> [N, I] float32 with mean 0 and deviation 1 in each column."""
    rows = x.reshape(-1, x.shape[-1]).astype(jnp.float32)
    centered = rows - rows.mean(0)
    return centered * jax.lax.rsqrt(jnp.square(centered).mean(0) + eps)
