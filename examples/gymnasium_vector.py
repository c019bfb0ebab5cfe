"""Trains on a vector environment of Gymnasium: members that step together.

python examples/gymnasium_vector.py [STEPS] [PRESET]
"""

import sys
import tempfile

import gymnasium

import dreamerv3


def make_env():
    """Any gymnasium.vector.VectorEnv will do, in each mode of resetting."""
    return gymnasium.make_vec('CartPole-v1', num_envs=4, vectorization_mode='sync')


def main(steps=2000, preset='tiny'):
    with tempfile.TemporaryDirectory() as logdir:
        # Two of them, with 4 members each.
        options = {'run.envs': 8}
        run = dreamerv3.train(
            make_env, logdir, float(steps), configs=[preset], options=options
        )
        print(f'{len(run.scores)} episodes, the last ones scored {run.scores[-5:]}')


if __name__ == '__main__':
    main(*sys.argv[1:])
