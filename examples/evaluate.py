"""Evaluates a trained agent in an environment that this script makes itself.

python examples/evaluate.py ~/logdir/catch
"""

import sys

import dreamerv3
import embodied


def make_env(index):
    return embodied.envs.make('toy_catch', seed=index, size=16)


if __name__ == '__main__':
    agent = dreamerv3.load(sys.argv[1])
    result = dreamerv3.evaluate(agent, make_env, episodes=8, greedy=True)
    print({name: round(value, 3) for name, value in result.summary().items()})
