"""Trains on a vector environment of your own, without Gymnasium.

python examples/own_vector.py [STEPS] [PRESET]
"""

import sys
import tempfile

import elements
import numpy as np

import dreamerv3
import embodied

LENGTH = 10


class Guess(embodied.VectorEnv):
    """Shows each member a number; the right action is that number.

    Arrays have one row per member. They may be of NumPy, JAX or torch.
    """

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

    def __init__(self, num=4, seed=None):
        self.num = num
        self._random = np.random.default_rng(seed)
        self._number = np.zeros(num, np.int32)
        self._steps = np.zeros(num, np.int32)

    def step(self, actions):
        reset = actions['reset']
        right = (actions['guess'] == self._number) & ~reset
        self._steps = np.where(reset, 0, self._steps + 1)
        self._number = self._random.integers(0, 3, self.num, np.int32)
        return {
            'number': self._number,
            'reward': right.astype(np.float32),
            'is_first': reset,
            'is_last': self._steps == LENGTH,
            'is_terminal': np.zeros(self.num, bool),
        }

    def close(self):
        pass


def main(steps=2000, preset='tiny'):
    with tempfile.TemporaryDirectory() as logdir:
        options = {'run.envs': 8}
        run = dreamerv3.train(
            Guess, logdir, float(steps), configs=[preset], options=options
        )
        print(f'{len(run.scores)} episodes, the last ones scored {run.scores[-5:]}')


if __name__ == '__main__':
    main(*sys.argv[1:])
