"""Acts with the policy in policy.zip, without the package that trained it.

    policy = Policy('policy.zip')
    action, state = policy.act(obs)  # an episode begins
    action, state = policy.act(obs, state)  # and goes on

README.md says what to install, what observations must look like and what actions mean.
To play an environment of Gymnasium whose spaces fit: python player.py CartPole-v1
"""

import json
import math
import pathlib
import sys
import zipfile

import numpy as np


class Policy:
    """One policy for any number of environments, each with its own state."""

    def __init__(self, path, seed=None):
        """seed: of what is random; None is the one that the agent had."""
        with zipfile.ZipFile(path) as file:
            self.about = json.loads(file.read('policy.json'))
            seed = self.about['seed'] if seed is None else seed
            self.program: StableHLO | Onnx
            if self.about['format'] == 'onnx':
                self.program = Onnx(file, self.about, seed)
            else:
                self.program = StableHLO(file, self.about, seed)

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
        axes = {batch[key].ndim - len(space['shape']) for key, space in spaces}
        if len(axes) > 1:
            raise ValueError('Some keys have an axis of a batch in front, others not')
        single = axes == {0}
        batch = {key: x[None] if single else x for key, x in batch.items()}
        rows = len(next(iter(batch.values())))
        first = np.array(np.broadcast_to(obs.get('is_first', False), rows), bool)
        if state is None:
            zeros = [(x['shape'], np.dtype(x['dtype'])) for x in self.about['state']]
            state = [np.zeros((rows, *shape), dtype) for shape, dtype in zeros]
            first[:] = True
        state, action = self.program(state, {**batch, 'is_first': first}, greedy)
        action = {key: np.asarray(x) for key, x in action.items()}
        return {key: x[0] if single else x for key, x in action.items()}, state

    def outside(self, key, value):
        """An action of `step` in the environment's own units, if they are known."""
        space = self.about['actions'][key]
        there = space['environment'] or {'dtype': space['dtype']}
        if space['dtype'].startswith('float'):
            value = np.clip(value, -1, 1)
        if 'low' in there:
            value = value.astype(there['dtype']).astype(np.float64)
            low, high = np.asarray(there['low']), np.asarray(there['high'])
            value = low * (1 - value) / 2 + high * (1 + value) / 2
        return (value + np.asarray(there.get('start', 0))).astype(there['dtype'])


class StableHLO:
    """The policy as StableHLO, which jax compiles for the device that there is."""

    def __init__(self, file, about, seed):
        import jax.export

        data, self.weights = file.read('weights.bin'), []
        for x in about['weights']:
            dtype, size = np.dtype(x['dtype']), math.prod(x['shape'])
            flat = np.frombuffer(data, dtype, size, x['offset'])
            self.weights.append(jax.device_put(flat.reshape(x['shape'])))
        load = lambda name: jax.export.deserialize(bytearray(file.read(name)))
        self.greedy = jax.jit(load('greedy.stablehlo').call)
        self.sampled = jax.jit(load('sampled.stablehlo').call)
        self.seed, self.calls = np.uint32(seed % 2**32), 0

    def __call__(self, state, obs, greedy):
        self.calls += 1
        program, count = self.greedy if greedy else self.sampled, np.uint32(self.calls)
        return program(self.weights, state, obs, self.seed, count)


class Onnx:
    """The policy as ONNX; what is random about it is an input."""

    def __init__(self, file, about, seed):
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3  # errors
        self.session = onnxruntime.InferenceSession(file.read('policy.onnx'), options)
        self.about, self.random = about, np.random.default_rng(seed % 2**32)

    def __call__(self, state, obs, greedy, noise=None):
        rows, batch = len(obs['is_first']), self.about['batch']
        if rows != batch:
            raise ValueError(f'{rows} observations; this was exported for {batch}')
        noise = self.draw() if noise is None else noise
        inputs = {f'state/{i}': x for i, x in enumerate(state)}
        inputs |= {f'obs/{k}': x for k, x in obs.items()} | noise
        names = [x.name for x in self.session.get_outputs()]
        outs = dict(zip(names, self.session.run(None, inputs), strict=True))
        prefix = 'greedy/' if greedy else 'sampled/'
        keys = sorted(self.about['actions'])
        action = {k: outs[prefix + k] for k in keys}
        # The last arrays of the state are the actions, which it remembers.
        kept = [outs[f'next/{i}'] for i in range(len(state) - len(keys))]
        return [*kept, *action.values()], action

    def draw(self):
        """Noise of one call: Gumbel for choices, normal for continuous actions."""
        drawn = {}
        for name, x in self.about['noise'].items():
            is_choice, shape = x['kind'] == 'gumbel', x['shape']
            draw = self.random
            value = draw.gumbel(size=shape) if is_choice else draw.normal(size=shape)
            drawn[name] = np.asarray(value, np.float32)
        return drawn


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
    key = next(iter(policy.about['observations']))
    for _ in range(episodes):
        obs, _ = env.reset()
        state, score, over = None, 0.0, False
        while not over:
            obs = obs if isinstance(obs, dict) else {key: obs}
            action, state = policy.act(obs, state)
            action = action['action'] if list(action) == ['action'] else action
            obs, reward, terminated, truncated, _ = env.step(action)
            score, over = score + float(reward), terminated or truncated
        print(f'score {score:g}')
    env.close()


if __name__ == '__main__':
    if len(sys.argv) < 2:
        sys.exit('Name an environment: python player.py CartPole-v1 [EPISODES]')
    main(sys.argv[1], *map(int, sys.argv[2:3]))
