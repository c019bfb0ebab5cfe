"""Plays one episode of a built-in task with a trained agent, step by step.

dreamer train --configs tiny demo --script train --logdir ~/logdir/catch
python examples/act.py ~/logdir/catch
"""

import sys

import dreamerv3
from dreamerv3 import factories


def play(folder):
    agent = dreamerv3.load(folder)
    env = factories.make_env(agent.config, index=0)
    action = dict.fromkeys(agent.act_space, 0)
    obs = env.step({**action, 'reset': True})
    score, state = 0.0, None
    while not obs['is_last']:
        action, state = agent.act(obs, state, greedy=True)
        obs = env.step({**action, 'reset': False})
        score += float(obs['reward'])
    env.close()
    return score


if __name__ == '__main__':
    print('score', play(sys.argv[1]))
