"""Programs: a trained policy as StableHLO, apart from its weights.

Two programs share the weights, one for the most likely actions and one for samples:
each is exactly what the agent compiles, so that it computes the same.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..api.loaded import LoadedAgent

__all__ = ['NAMES', 'PLATFORMS', 'Programs', 'export_programs']

PLATFORMS = ('cpu', 'cuda')
NAMES = {'greedy': True, 'sampled': False}  # and whether they are greedy
ROWS = 'rows'  # the symbolic size of a batch


class Programs(NamedTuple):
    """program(weights, state, obs, seed, count) -> state, actions.

    code: serialized by jax.export, by name. state: shapes without the axis of the
    batch, dtypes.
    """

    code: dict[str, bytes]
    weights: list[np.ndarray]
    state: list[jax.ShapeDtypeStruct]


def export_programs(agent: LoadedAgent) -> Programs:
    """For any number of rows, on all PLATFORMS."""
    carry, structure = jax.tree.flatten(agent.init_policy(1))
    state = [jax.ShapeDtypeStruct(x.shape[1:], x.dtype) for x in carry]
    used, code = None, {}
    for name, greedy in NAMES.items():
        act, weights = agent.policy_function(greedy)
        if used is None:
            program = _lower(_flat(act, structure, weights), agent, weights, state)
            kept = program.module_kept_var_idx
            used = [i for i in range(len(weights)) if i in kept]
        function = _flat(act, structure, weights, used)
        chosen = [weights[i] for i in used]
        program = _lower(function, agent, chosen, state)
        code[name] = bytes(program.serialize())
    return Programs(code, [np.asarray(x) for x in chosen], state)


def _flat(
    act: Callable[..., Any], structure: Any, weights: list[Any], used: Any = None
) -> Callable[..., Any]:
    """The policy with lists instead of trees; `used` are the numbers of the weights
    that it is given. The others are not looked at."""
    shapes = [(x.shape, x.dtype) for x in weights]

    def policy(weights, state, obs, seed, count):
        if used is not None:
            whole = [jnp.zeros(*x) for x in shapes]
            for index, value in zip(used, weights, strict=True):
                whole[index] = value
            weights = whole
        carry = jax.tree.unflatten(structure, state)
        carry, acts = act(weights, carry, obs, seed, count)
        return jax.tree.leaves(carry), acts

    return policy


def _lower(
    function: Callable[..., Any],
    agent: LoadedAgent,
    weights: list[Any],
    state: list[jax.ShapeDtypeStruct],
) -> Any:
    (rows,) = jax.export.symbolic_shape(ROWS)
    batch = lambda x: jax.ShapeDtypeStruct((rows, *x.shape), x.dtype)
    obs = {k: batch(x) for k, x in agent.obs_space.items()}
    obs['is_first'] = jax.ShapeDtypeStruct((rows,), bool)
    number = jax.ShapeDtypeStruct((), jnp.uint32)
    return jax.export.export(jax.jit(function), platforms=PLATFORMS)(
        [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in weights],
        [batch(x) for x in state],
        obs,
        number,
        number,
    )
