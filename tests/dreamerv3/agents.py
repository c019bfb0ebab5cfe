"""Agents of the smallest size for any spaces, and random data for them."""

import elements
import numpy as np

from dreamerv3 import config

__all__ = ['ACTIONS', 'OBSERVATIONS', 'make_batch', 'make_config', 'make_obs', 'spaces']

STEPID = 20  # bytes

OBSERVATIONS = {
    'image': elements.Space(np.uint8, (16, 16, 3)),
    'depth': elements.Space(np.uint8, (16, 16, 1)),
    'vector': elements.Space(np.float32, 7),
    'scalar': elements.Space(np.float32),
    'token': elements.Space(np.int32, (), 0, 11),
    'flag': elements.Space(bool),
    'table': elements.Space(np.float32, (3, 2)),
    'tiles': elements.Space(np.int32, (2, 3), 0, 4),
    'bytes': elements.Space(np.uint8, 3, 0, 200),
}
ACTIONS = {
    'discrete': elements.Space(np.int32, (), 0, 5),
    'multi': elements.Space(np.int32, 3, 0, 4),
    'button': elements.Space(bool),
    'force': elements.Space(np.float32, 2, -1, 1),
    'grip': elements.Space(np.float32, (), -1, 1),
}
CONTROL = {
    'reward': elements.Space(np.float32),
    **{k: elements.Space(bool) for k in ('is_first', 'is_last', 'is_terminal')},
}


def make_config(*flags):
    """Quick to compile, and quick to learn: a few updates change every parameter."""
    options = {
        'configs': 'debug',
        r'.*\.mults': '2,2',
        r'.*\.depth': 4,
        r'.*\.layers': 1,
        r'.*\.bins': 41,
        'agent.imag_length': 2,
        'agent.opt.lr': 1e-2,
        'agent.opt.warmup': 0,
        'jax.platform': 'cpu',
        'jax.cache': '',
    }
    return config.resolve([*(f'--{k}={v}' for k, v in options.items()), *flags])[0]


def spaces(observations=tuple(OBSERVATIONS), actions=tuple(ACTIONS)):
    """obs_space and act_space of the named kinds."""
    obs = {k: OBSERVATIONS[k] for k in observations} | CONTROL
    return obs, {k: ACTIONS[k] for k in actions}


def make_obs(space, lead, seed=0):
    """Random values [*lead, ...] of all keys."""
    rng = np.random.default_rng(seed)
    return {k: _random(rng, x, lead) for k, x in space.items()}


def make_batch(model, obs_space, act_space, rows=2, length=3, seed=0):
    """A random batch [rows, context + length], as replay would give it."""
    lead = (rows, model.context + length)
    rng = np.random.default_rng(seed)
    data = make_obs(obs_space | act_space | model.latent_spaces, lead, seed)
    data['dyn/stoch'] = data['dyn/stoch'] % model.config.dyn.classes
    data['dyn/deter'] = np.zeros_like(data['dyn/deter'])
    first = np.zeros(lead, bool)
    first[:, 0] = True
    return {
        **data,
        'is_first': first,
        'consec': np.zeros(lead, np.int32),
        'stepid': rng.integers(0, 256, (*lead, STEPID), np.uint8),
    }


def _random(rng, space, lead):
    shape = (*lead, *space.shape)
    if space.dtype == bool:
        return rng.random(shape) < 0.3
    if space.discrete:
        return rng.integers(0, int(np.max(space.high)), shape).astype(space.dtype)
    return rng.standard_normal(shape).astype(space.dtype)
