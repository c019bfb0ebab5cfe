"""A model that compiles in no time: what the Agent does is tested with it."""

import jax
import jax.numpy as jnp
import numpy as np

from embodied.jax import Model
from embodied.jax.model import TrainResult

__all__ = ['Toy', 'batch']

RATE = 0.1
STEPID = 20  # bytes


class Toy(Model):
    """Learns the mean of `x` from noisy steps; acts by that mean plus noise."""

    policy_keys = ('x',)
    batch_keys = ('y', 'x')  # not in the order in which JAX sorts them
    context = 2

    def init(self, key):
        noise = jax.random.normal(key, (3,))
        return {'params': {'mean': noise, 'bias': jnp.zeros(())}, 'steps': jnp.int32(0)}

    def weights(self, state):
        return state['params']

    def policy_params(self, weights):
        return {'mean': weights['mean']}

    def batch_shapes(self, batch, length):
        lead = (batch, self.context + length)
        shape = lambda *rest: jax.ShapeDtypeStruct((*lead, *rest), jnp.float32)
        return {'x': shape(3), 'y': shape()}

    def init_policy(self, batch):
        return jnp.zeros((batch, 3))

    def policy(self, params, carry, obs, key, greedy):
        noise = jax.random.normal(key, obs['x'].shape)
        act = params['mean'] + (0 if greedy else 1) * noise
        return carry + 1, {'act': act}, {'seen': obs['x']}

    def init_train(self, batch):
        return jnp.zeros((batch, 3))

    def train(self, state, weights, carry, batch, key):
        params, steps = state['params'], state['steps']
        trained = batch['x'][:, self.context :]
        error = params['mean'] - trained
        noise = 0.01 * jax.random.normal(key, (3,))
        mean = params['mean'] - RATE * error.mean((0, 1)) + noise
        params = {'mean': mean, 'bias': params['bias'] + batch['y'].mean()}
        losses = {'zeta': jnp.square(error).mean(), 'alpha': batch['y'].mean()}
        return TrainResult(
            {'params': params, 'steps': steps + 1},
            carry + 1,
            losses,
            {'dyn/x': trained * 2},
            {'loss/zeta': losses['zeta'], 'steps': steps},
        )

    def report(self, state, weights, carry, batch, key):
        metrics = {
            'noise': jax.random.normal(key, ()),
            'picture': jnp.zeros((4, 4, 3), jnp.uint8),
        }
        return carry + 1, metrics


def batch(seed=0, rows=2, length=5):
    rng = np.random.default_rng(seed)
    return {
        'x': rng.standard_normal((rows, length, 3)).astype(np.float32),
        'y': rng.standard_normal((rows, length)).astype(np.float32),
        'unused': np.array(['text']),
        'stepid': rng.integers(0, 256, (rows, length, STEPID), np.uint8),
    }
