"""Latents: states of the world model in the compact form that replay keeps.

`dyn/deter` travels in the compute dtype, bfloat16 as its uint16 bits since foreign
code may not know the dtype. `dyn/stoch` is one-hot, so class indices hold it exactly.
"""

from typing import Any

import elements
import jax
import jax.numpy as jnp
import numpy as np

from .rssm import RSSM, State

__all__ = ['latent_spaces', 'pack', 'unpack']

DETER, STOCH = 'dyn/deter', 'dyn/stoch'


def latent_spaces(config: Any, dtype: Any) -> dict[str, elements.Space]:
    """config: the agent.dyn options."""
    deter = np.uint16 if dtype == jnp.bfloat16 else np.float32
    return {
        DETER: elements.Space(deter, config.deter),
        STOCH: elements.Space(np.uint8, config.stoch),
    }


def pack(state: State) -> dict[str, jax.Array]:
    """State [..., D], [..., S, C] -> entries [..., D], [..., S]."""
    deter = state.deter
    if deter.dtype == jnp.bfloat16:
        deter = jax.lax.bitcast_convert_type(deter, jnp.uint16)
    return {DETER: deter, STOCH: state.stoch.argmax(-1).astype(jnp.uint8)}


def unpack(entries: dict[str, jax.Array], dyn: RSSM, dtype: Any) -> State:
    """The inverse of pack."""
    deter = entries[DETER]
    if deter.dtype == jnp.uint16:
        deter = jax.lax.bitcast_convert_type(deter, jnp.bfloat16)
    stoch = jax.nn.one_hot(entries[STOCH], dyn.classes, dtype=dtype)
    return State(deter.astype(dtype), stoch)
