"""Trains on an environment of your own, in one process, for 2,000 steps.

python examples/own_environment.py
"""

import functools
import tempfile

import elements
import numpy as np

import embodied
from dreamerv3 import config, factories, main


class Guess(embodied.Env):
    """Shows a number; the right action is that number."""

    obs_space = {
        'number': elements.Space(np.int32, (), 0, 3),
        'reward': elements.Space(np.float32),
        'is_first': elements.Space(bool),
        'is_last': elements.Space(bool),
        'is_terminal': elements.Space(bool),
    }
    act_space = {
        'guess': elements.Space(np.int32, (), 0, 3),
        'reset': elements.Space(bool),
    }

    def __init__(self, seed):
        self._random = np.random.default_rng(seed)
        self._number = 0
        self._steps = 0

    def step(self, action):
        right = action['guess'] == self._number
        self._steps = 0 if action['reset'] else self._steps + 1
        self._number = int(self._random.integers(3))
        return {
            'number': np.int32(self._number),
            'reward': np.float32(right and not action['reset']),
            'is_first': self._steps == 0,
            'is_last': self._steps == 10,
            'is_terminal': False,
        }


def make_env(index):
    return embodied.envs.wrap(Guess(seed=index))


def make_agent(options):
    from dreamerv3 import Agent

    env = make_env(0)
    acts = {k: v for k, v in env.act_space.items() if k != 'reset'}
    return Agent(env.obs_space, acts, options)


if __name__ == '__main__':
    with tempfile.TemporaryDirectory() as logdir:
        flags = ['--configs', 'tiny', '--run.steps=2000', '--run.envs=4']
        options, _ = config.resolve([*flags, f'--logdir={logdir}'])
        bind = functools.partial
        embodied.run.train(
            bind(make_agent, options),
            bind(factories.make_replay, options, 'replay'),
            make_env,
            bind(factories.make_stream, options),
            bind(factories.make_logger, options),
            main.loop_args(options),
        )
