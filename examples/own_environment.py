"""Trains on an environment of your own, in one process, for 2,000 steps.

python examples/own_environment.py
"""

import tempfile

import elements
import numpy as np

import dreamerv3
import embodied


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


if __name__ == '__main__':
    with tempfile.TemporaryDirectory() as logdir:
        run = dreamerv3.train(
            Guess, logdir, steps=2000, configs=['tiny'], options={'run.envs': 4}
        )
        print(f'{len(run.scores)} episodes, the last ten: {run.scores[-10:]}')
