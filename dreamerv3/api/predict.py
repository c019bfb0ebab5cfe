"""Prediction: what a trained model expects to see after recorded steps."""

from typing import Any

import jax
import jax.numpy as jnp

from ..agent.actions import Values
from ..agent.model import Dreamer, Nets

__all__ = ['predict']


def predict(
    model: Dreamer,
    params: Nets,
    obs: dict[str, jax.Array],
    past: Values,
    future: Values,
    key: jax.Array,
) -> dict[str, Any]:
    """Observes [B, T, ...] steps, then imagines one step per future action [B, H, ...].

    past: the actions before each observed step, [B, T, ...]. Returns {'obs': by key,
    'reward', 'cont'}, [B, H, ...]; images in 0..1; cont is the probability that the
    episode goes on.
    """
    key_seen, key_rest = jax.random.split(key)
    tokens = params.enc({k: obs[k] for k in model.encoded}, model.dtype)
    before = model.actions.vector(past, model.dtype)
    after = model.actions.vector(future, model.dtype)
    start = params.dyn.initial(len(before), model.dtype)
    states, _ = params.dyn.observe(
        start, tokens, before, obs['is_first'], _gumbel(model, key_seen, before)
    )
    last = jax.tree.map(lambda x: x[:, -1], states)
    imagined = params.dyn.imagine(last, after, _gumbel(model, key_rest, after))
    feat, discount = imagined.feat, 1 - 1 / model.config.horizon
    return {
        'obs': {name: out.pred() for name, out in params.dec(imagined).items()},
        'reward': params.reward(feat).pred(),
        'cont': jnp.minimum(1, params.cont(feat).prob() / discount),
    }


def _gumbel(model: Dreamer, key: jax.Array, actions: jax.Array) -> jax.Array:
    """Noise for each step of actions [B, T, ...]."""
    dyn = model.config.dyn
    shape = (*actions.shape[:2], dyn.stoch, dyn.classes)
    return jax.random.gumbel(key, shape, jnp.float32)
