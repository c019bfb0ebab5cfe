"""Replay context: cuts the first K steps off a batch and starts from their latent."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from embodied.core.step_keys import is_latent

from .actions import Values
from .networks.latents import unpack
from .networks.rssm import RSSM, State

__all__ = ['Carry', 'Sequence', 'cut_context']


class Carry(NamedTuple):
    """What one batch leaves to the next: state and action of the last step, [B]."""

    state: State
    action: Values


class Sequence(NamedTuple):
    """Trained steps: batch [B, T, ...], the actions before them, the state before."""

    batch: dict[str, jax.Array]
    previous: Values
    start: State


def cut_context(
    batch: dict[str, jax.Array], carry: Carry, context: int, dyn: RSSM, dtype: Any
) -> Sequence:
    """batch: [B, K + T, ...] -> trained steps [B, T, ...].

    The first of consecutive batches starts from the latent stored with step K - 1 (or
    from the zero state without context), later ones from the carry.
    """
    steps = {k: v[:, context:] for k, v in batch.items() if not is_latent(k)}
    fresh = batch['consec'][:, 0] == 0
    if context:
        previous = {k: batch[k][:, context - 1 : -1] for k in carry.action}
        stored = {k: v[:, context - 1] for k, v in batch.items() if is_latent(k)}
        start = unpack(stored, dyn, dtype)
    else:
        previous = {
            k: jnp.concatenate([v[:, None].astype(batch[k].dtype), batch[k][:, :-1]], 1)
            for k, v in carry.action.items()
        }
        start = dyn.initial(len(fresh), dtype)
    choose = lambda new, old: jnp.where(
        fresh.reshape(-1, *[1] * (new.ndim - 1)), new, old
    )
    return Sequence(steps, previous, jax.tree.map(choose, start, carry.state))
