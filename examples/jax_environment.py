"""Trains on an environment that is written in JAX: all members in one program.

python examples/jax_environment.py [STEPS] [PRESET]
"""

import sys
import tempfile

import elements
import jax
import jax.numpy as jnp
import numpy as np

import dreamerv3
from embodied.envs import FunctionalEnv, FunctionalVectorEnv


class Walk(FunctionalEnv):
    """A point on a line; the closer to the goal, the better."""

    obs_space = {'vector': elements.Space(np.float32, (2,))}
    act_space = {'action': elements.Space(np.float32, (1,), -1, 1)}

    def init(self, key):
        state = {
            'position': jnp.zeros(1),
            'goal': jax.random.uniform(key, (1,), minval=-1),
            'steps': jnp.int32(0),
        }
        return state, self.observation(state)

    def transition(self, key, state, action):
        state = {
            'position': state['position'] + 0.1 * action['action'],
            'goal': state['goal'],
            'steps': state['steps'] + 1,
        }
        reward = 1 - jnp.abs(state['position'] - state['goal'])[0]
        is_terminal = jnp.abs(state['position'][0]) > 1.5
        is_last = is_terminal | (state['steps'] >= 10)
        return state, self.observation(state), reward, is_last, is_terminal

    def observation(self, state):
        return {'vector': jnp.concatenate([state['position'], state['goal']])}


def make_env(seed=None):
    return FunctionalVectorEnv(Walk(), num=8, seed=seed)


def main(steps=2000, preset='tiny'):
    with tempfile.TemporaryDirectory() as logdir:
        options = {'run.envs': 8}
        run = dreamerv3.train(
            make_env, logdir, float(steps), configs=[preset], options=options
        )
        print(f'{len(run.scores)} episodes, the last ones scored {run.scores[-5:]}')


if __name__ == '__main__':
    main(*sys.argv[1:])
