"""CartPole as pure functions, with the dynamics of Gymnasium's."""

import elements
import jax
import jax.numpy as jnp
import numpy as np

from embodied.envs import FunctionalEnv

ANGLE, PLACE = 12 * 2 * np.pi / 360, 2.4  # beyond which the episode is lost


class CartPole(FunctionalEnv):
    obs_space = {'vector': elements.Space(np.float32, (4,))}  # noqa: RUF012
    act_space = {'action': elements.Space(np.int32, (), 0, 2)}  # noqa: RUF012

    def init(self, key):
        state = jax.random.uniform(key, (4,), minval=-0.05, maxval=0.05)
        return state, {'vector': state}

    def transition(self, key, state, action):
        x, speed, angle, spin = state
        force = jnp.where(action['action'] == 1, 10.0, -10.0)
        cos, sin = jnp.cos(angle), jnp.sin(angle)
        temp = (force + 0.05 * spin**2 * sin) / 1.1
        spin_rate = (9.8 * sin - cos * temp) / (0.5 * (4 / 3 - 0.1 * cos**2 / 1.1))
        speed_rate = temp - 0.05 * spin_rate * cos / 1.1
        rates = jnp.stack([speed, speed_rate, spin, spin_rate])
        state = state + 0.02 * rates
        lost = (jnp.abs(state[0]) > PLACE) | (jnp.abs(state[2]) > ANGLE)
        return state, {'vector': state}, 1.0, lost, lost
