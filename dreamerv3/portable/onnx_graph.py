"""ONNX: the policy as a graph for onnxruntime, compared with the agent it comes from.

ONNX has no random numbers that agree with those of JAX, so all that is random about
acting is an input: Gumbel noise of the state and of discrete actions, normal noise of
continuous ones. The graph puts out the most likely actions and samples.
"""

from io import BytesIO
from pathlib import Path
from typing import Any

import elements
import jax
import jax.extend
import numpy as np

from embodied.core.errors import ConfigError
from embodied.envs import extras
from embodied.jax.agent import policy_key

from ..api.loaded import LoadedAgent
from .archive import Entries
from .player import Policy

__all__ = ['compare_onnx', 'export_onnx']

EXTRA = 'onnx'
STATE = 'noise/state'
CALLS = 64  # that are compared
TOLERANCE = 1e-4  # of continuous actions, which lie in -1..1


def export_onnx(agent: LoadedAgent, batch: int) -> tuple[dict[str, Any], Entries]:
    """The graph for `batch` rows, and what a player has to know about it."""
    jax2onnx = extras.require('jax2onnx', EXTRA)
    extras.check('onnxruntime', EXTRA)
    model, params = agent.model, agent.policy_params
    carry, form = jax.tree.flatten(agent.init_policy(batch))
    obs = {k: _batch(x, batch) for k, x in agent.obs_space.items()}
    obs['is_first'] = jax.ShapeDtypeStruct((batch,), bool)
    noise = _noise(agent, batch)

    def policy(*inputs):
        state, rest = inputs[: len(carry)], inputs[len(carry) :]
        seen, (gumbel, *draws) = dict(zip(obs, rest, strict=False)), rest[len(obs) :]
        noise = dict(zip(model.actions.spaces, draws, strict=True))
        state = jax.tree.unflatten(form, state)
        state, dists = model.perceive(params, state, seen, gumbel)
        acts = [model.actions.pred(dists), model.actions.sample(dists, noise)]
        return *state, *jax.tree.leaves([model.actions.cast(x) for x in acts])

    shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in carry]
    shapes += [*obs.values(), *noise.values()]
    keys = sorted(model.actions.spaces)
    names = [f'state/{i}' for i in range(len(carry))]
    # Traced here: the converter replaces functions of jax.numpy by its own, which do
    # not promote Python numbers as those do.
    traced = jax.extend.core.jaxpr_as_fun(jax.make_jaxpr(policy)(*shapes))
    graph = jax2onnx.to_onnx(
        traced,
        shapes,
        model_name='policy',
        input_names=[*names, *(f'obs/{k}' for k in obs), *noise],
        output_names=[
            *(f'next/{i}' for i in range(len(carry) - len(keys))),
            *(f'{how}/{k}' for how in ('greedy', 'sampled') for k in keys),
        ],
    )
    kinds = {k: _kind(agent, k) for k in noise}
    about = {k: {'kind': kinds[k], 'shape': list(x.shape)} for k, x in noise.items()}
    entries: Entries = {'policy.onnx': [graph.SerializeToString()]}
    return {'format': 'onnx', 'batch': batch, 'noise': about}, entries


def compare_onnx(agent: LoadedAgent, file: Path | BytesIO, batch: int) -> float:
    """The largest difference of continuous actions between the agent and the player
    with the archive; raises if the two do not agree."""
    program: Any = Policy(file).program
    model, rng, worst = agent.model, np.random.default_rng(0), 0.0
    state = agent.init_policy(batch)
    with jax.default_matmul_precision('highest'):
        for call in range(CALLS):
            obs = {k: _random(x, batch, rng) for k, x in agent.obs_space.items()}
            obs['is_first'] = np.full(batch, call % 8 == 0)
            greedy = call % 2 == 0
            key = policy_key(agent.config.seed, call + 1)
            gumbel, draws = model.policy_noise(key, batch)
            noise = {f'noise/{k}': np.asarray(x) for k, x in draws.items()}
            noise[STATE] = np.asarray(gumbel)
            leaves = [np.asarray(x) for x in jax.tree.leaves(state)]
            _, given = program(leaves, obs, greedy, noise)
            mode = 'eval' if greedy else 'train'
            state, acts, _ = agent.policy(state, obs, mode)
            for name, space in agent.act_space.items():
                far = np.abs(given[name].astype(np.float64) - acts[name]).max()
                if far > (0 if space.discrete else TOLERANCE):
                    raise ConfigError(
                        f'The policy as ONNX does not act as the agent does: {name!r} '
                        f'differs by {far:.2g} in call {call} of {CALLS}. Use --format '
                        'stablehlo.'
                    )
                worst = max(worst, 0.0 if space.discrete else far)
    return worst


def _noise(agent: LoadedAgent, batch: int) -> dict[str, jax.ShapeDtypeStruct]:
    draw = lambda: agent.model.policy_noise(jax.random.key(0), batch)
    gumbel, draws = jax.eval_shape(draw)
    names = agent.model.actions.spaces
    return {STATE: gumbel, **{f'noise/{k}': draws[k] for k in names}}


def _kind(agent: LoadedAgent, name: str) -> str:
    key = name.removeprefix('noise/')
    discrete = name == STATE or agent.act_space[key].discrete
    return 'gumbel' if discrete else 'normal'


def _batch(space: elements.Space, batch: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((batch, *space.shape), space.dtype)


def _random(space: elements.Space, batch: int, rng: np.random.Generator) -> np.ndarray:
    shape = (batch, *space.shape)
    if space.dtype == bool:
        return rng.random(shape) < 0.5
    if space.discrete:
        return rng.integers(0, space.high, shape).astype(space.dtype)
    value = rng.standard_normal(shape).astype(space.dtype)
    return np.clip(value, space.low, space.high).astype(space.dtype)
