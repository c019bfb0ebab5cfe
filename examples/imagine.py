"""Asks the world model of a trained agent what happens next, and draws its answer.

python examples/imagine.py ~/logdir/catch [OUT.png]
"""

import sys

import numpy as np
from PIL import Image

import dreamerv3
from dreamerv3 import factories

SEEN = 3  # steps that the model may look at


def record(agent, rng):
    """Observations and actions of an episode with random actions."""
    env = factories.make_env(agent.config, index=0)
    space = agent.act_space['action']
    steps, actions = [env.step({'action': np.int32(0), 'reset': True})], []
    while not steps[-1]['is_last']:
        actions.append(rng.integers(space.high).astype(space.dtype))
        steps.append(env.step({'action': actions[-1], 'reset': False}))
    env.close()
    obs = {key: np.stack([step[key] for step in steps]) for key in steps[0]}
    return obs, {'action': np.stack(actions)}


def main(folder, out='imagined.png'):
    agent = dreamerv3.load(folder)
    obs, actions = record(agent, np.random.default_rng(0))
    future = agent.imagine({'image': obs['image'][:SEEN]}, actions)
    truth = np.concatenate(obs['image'][SEEN:], axis=1)
    model = np.concatenate(future.frames['image'], axis=1)
    Image.fromarray(np.concatenate([truth, model])).save(out)
    print('rewards  truth', obs['reward'][SEEN:], ' model', future.reward.round(2))
    print('truth above, model below:', out)


if __name__ == '__main__':
    main(*sys.argv[1:])
