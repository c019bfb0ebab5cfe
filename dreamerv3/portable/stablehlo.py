"""StableHLO: a trained policy as programs, apart from its weights.

Two programs share the weights, one for the most likely actions and one for samples:
each is exactly what the agent compiles, so that it computes the same.
"""

from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np

from embodied.envs import extras
from embodied.jax.agent import policy_key

from ..api.loaded import LoadedAgent
from .archive import Entries, shaped

__all__ = ['export_stablehlo']

EXTRA = 'stablehlo'
PLATFORMS = ('cpu', 'cuda')
NAMES = {'greedy': True, 'sampled': False}  # and whether they are greedy
ROWS = 'rows'  # the symbolic size of a batch
ALIGNMENT = 64  # bytes


def export_stablehlo(agent: LoadedAgent) -> tuple[dict[str, Any], Entries]:
    """program(weights, state, obs, seed, count) -> state, actions, for any number of
    rows and on all PLATFORMS; what a player has to know about it, and the files."""
    extras.check('flatbuffers', EXTRA)  # by which jax.export serializes
    weights, structure = jax.tree.flatten(agent.policy_params)
    # Samples need all that the most likely actions need.
    program = _lower(agent, weights, structure, range(len(weights)), greedy=False)
    used = [x for x in program.module_kept_var_idx if x < len(weights)]
    entries: Entries = {
        f'{name}.stablehlo': [
            bytes(_lower(agent, weights, structure, used, greedy).serialize())
        ]
        for name, greedy in NAMES.items()
    }
    places, parts, offset = [], [], 0
    for index in used:
        value = np.asarray(weights[index], order='C')
        places.append({**shaped(value), 'offset': offset})
        parts.append(value.tobytes() + b'\0' * (-value.nbytes % ALIGNMENT))
        offset += len(parts[-1])
    entries['weights.bin'] = parts
    return {'format': 'stablehlo', 'platforms': PLATFORMS, 'weights': places}, entries


def _lower(
    agent: LoadedAgent, weights: list[Any], structure: Any, used: Any, greedy: bool
) -> Any:
    """used: numbers of the weights that the program takes. It does not look at the
    others."""
    (rows,) = jax.export.symbolic_shape(ROWS)
    batch = lambda x: jax.ShapeDtypeStruct((rows, *x.shape), x.dtype)
    carry, form = jax.tree.flatten(agent.init_policy(1))

    def policy(chosen, state, obs, seed, count):
        whole = [jnp.zeros(x.shape, x.dtype) for x in weights]
        for index, value in zip(used, chosen, strict=True):
            whole[index] = value
        params = jax.tree.unflatten(structure, whole)
        state, key = jax.tree.unflatten(form, state), policy_key(seed, count)
        carry, acts, _ = agent.model.policy(params, state, obs, key, greedy)
        return jax.tree.leaves(carry), acts

    obs = {k: batch(x) for k, x in agent.obs_space.items()}
    number = jax.ShapeDtypeStruct((), jnp.uint32)
    return jax.export.export(jax.jit(policy), platforms=PLATFORMS)(
        [jax.ShapeDtypeStruct(weights[i].shape, weights[i].dtype) for i in used],
        [batch(jax.ShapeDtypeStruct(x.shape[1:], x.dtype)) for x in carry],
        {**obs, 'is_first': jax.ShapeDtypeStruct((rows,), bool)},
        number,
        number,
    )
