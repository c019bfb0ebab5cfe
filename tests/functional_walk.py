"""An environment of pure functions for tests: a walk that follows its actions."""

import elements
import jax
import jax.numpy as jnp
import numpy as np

from embodied.envs.vector.functional.contract import FunctionalEnv

SIZE = 3


class Walk(FunctionalEnv):
    """Episodes of 2 to 6 steps; every other one is cut off, the others are terminal."""

    obs_space = {
        'x': elements.Space(np.float32, SIZE),
        'log/length': elements.Space(np.int32),
    }
    act_space = {'act': elements.Space(np.float32, SIZE, -1, 1)}

    def init(self, key):
        place, length = jax.random.split(key)
        state = {
            'x': jax.random.normal(place, (SIZE,)),
            'count': jnp.int32(0),
            'length': jax.random.randint(length, (), 2, 7),
        }
        return state, self._show(state)

    def transition(self, key, state, action):
        noise = 0.1 * jax.random.normal(key, (SIZE,))
        x, count = state['x'] + action['act'] + noise, state['count'] + 1
        state = {**state, 'x': x, 'count': count}
        is_last = count >= state['length']
        is_terminal = is_last & (state['length'] % 2 == 0)
        return state, self._show(state), x.sum(), is_last, is_terminal

    def _show(self, state):
        return {'x': state['x'], 'log/length': state['length']}
