"""Acts with the policy in policy.zip: needs NumPy, jax and flatbuffers, no more.

    policy = Policy('policy.zip')
    action, state = policy.act(obs)  # an episode begins
    action, state = policy.act(obs, state)  # and goes on

README.md says what observations must look like and what actions mean. To play an
environment of Gymnasium whose spaces fit: python player.py CartPole-v1
"""

import json
import math
import pathlib
import sys
import zipfile

import jax
import jax.export
import numpy as np


class Policy:
    """One policy for any number of environments, each with its own state."""

    def __init__(self, path, seed=None):
        """seed: of sampled actions; None is the one that the agent had."""
        with zipfile.ZipFile(path) as file:
            self.about = json.loads(file.read('policy.json'))
            code = {x: file.read(f'{x}.stablehlo') for x in ('greedy', 'sampled')}
            data = file.read('weights.bin')
        self.programs = {
            name: jax.jit(jax.export.deserialize(bytearray(x)).call)
            for name, x in code.items()
        }
        self.weights = []
        for x in self.about['weights']:
            kind, size = np.dtype(x['dtype']), math.prod(x['shape'])
            flat = np.frombuffer(data, kind, size, x['offset'])
            self.weights.append(jax.device_put(flat.reshape(x['shape'])))
        seed = self.about['seed'] if seed is None else seed
        self.seed, self.calls = np.uint32(seed % 2**32), 0

    def act(self, obs, state=None, greedy=False):
        """The action in the environment's own units, and the state for the next call.

        obs: a dict with one observation, or a batch with one more axis in front of
        every key. An episode begins where state is None or obs['is_first'] is true.
        greedy: the most likely action instead of a sample.
        """
        action, state = self.step(obs, state, greedy)
        return {k: self.outside(k, x) for k, x in action.items()}, state

    def step(self, obs, state=None, greedy=False):
        """The same with the action as the agent gives it, in -1..1 or from 0 on."""
        spaces = self.about['observations'].items()
        batch = {key: checked(key, obs, space) for key, space in spaces}
        single = {x.ndim == len(self.shape(key)) for key, x in batch.items()}
        if len(single) > 1:
            shapes = {key: x.shape for key, x in batch.items()}
            raise ValueError(f'Some keys have an axis of a batch, others not: {shapes}')
        if single == {True}:
            batch = {key: x[None] for key, x in batch.items()}
        rows = len(next(iter(batch.values())))
        first = np.broadcast_to(np.asarray(obs.get('is_first', state is None)), rows)
        if state is None:
            zeros = [(x['shape'], np.dtype(x['dtype'])) for x in self.about['state']]
            state = [np.zeros((rows, *shape), kind) for shape, kind in zeros]
            first = np.ones(rows, bool)
        self.calls += 1
        program = self.programs['greedy' if greedy else 'sampled']
        inputs = {**batch, 'is_first': first.astype(bool)}
        state, action = program(
            self.weights, state, inputs, self.seed, np.uint32(self.calls)
        )
        pick = (lambda x: x[0]) if single == {True} else (lambda x: x)
        return {k: pick(np.asarray(x)) for k, x in action.items()}, state

    def shape(self, key):
        return self.about['observations'][key]['shape']

    def outside(self, key, value):
        """The action of `step` in the environment's own units, if they are known."""
        space = self.about['actions'][key]
        if space['dtype'].startswith('float'):
            value = np.clip(value, space['low'], space['high'], dtype=value.dtype)
        there = space['environment']
        if there is None:
            return value
        if 'low' in there:
            value = value.astype(there['dtype']).astype(np.float64)
            low, high = np.asarray(there['low']), np.asarray(there['high'])
            value = low * (1 - value) / 2 + high * (1 + value) / 2
        return (value + np.asarray(there.get('start', 0))).astype(there['dtype'])


def checked(key, obs, space):
    """The value of the key as the policy takes it; raises if it does not fit."""
    if key not in obs:
        raise KeyError(f'The observation lacks {key!r}: {space}')
    value, shape = np.asarray(obs[key]), tuple(space['shape'])
    lead = value.ndim - len(shape)
    if lead not in (0, 1) or value.shape[lead:] != shape:
        raise ValueError(f'{key!r} has shape {value.shape}, but must have {shape}')
    if not np.can_cast(value.dtype, space['dtype'], 'same_kind'):
        raise TypeError(f'{key!r} is {value.dtype}, but must be {space["dtype"]}')
    return value.astype(space['dtype'])


def main(name, episodes=1):
    import gymnasium

    env = gymnasium.make(name)
    policy = Policy(pathlib.Path(__file__).with_name('policy.zip'))
    (key, *others) = policy.about['observations']
    for _ in range(episodes):
        obs, _ = env.reset()
        state, score, over = None, 0.0, False
        while not over:
            named = obs if others or isinstance(obs, dict) else {key: obs}
            action, state = policy.act(named, state)
            action = action['action'] if list(action) == ['action'] else action
            obs, reward, terminated, truncated, _ = env.step(action)
            score, over = score + float(reward), terminated or truncated
        print(f'score {score:g}')
    env.close()


if __name__ == '__main__':
    main(*sys.argv[1:2], *map(int, sys.argv[2:3]))
