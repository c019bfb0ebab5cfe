"""Trains on an environment of your own, then asks the trained agent for an action.

python examples/own_environment.py [STEPS] [PRESET]
"""

import sys
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


def main(steps=2000, preset='tiny'):
    with tempfile.TemporaryDirectory() as logdir:
        options = {'run.envs': 4}
        run = dreamerv3.train(
            Guess, logdir, float(steps), configs=[preset], options=options
        )
        print(f'{len(run.scores)} episodes, the last ones scored {run.scores[-5:]}')
        action, _ = run.agent().act({'number': 2}, greedy=True)
        print(f'The guess for 2 is {action["guess"]}.')


if __name__ == '__main__':
    main(*sys.argv[1:])
