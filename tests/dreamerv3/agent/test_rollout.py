"""Imagined steps with joined products against the plain policy and model."""

import elements
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dreamerv3 import config
from dreamerv3.agent import behavior
from dreamerv3.agent.actions import Actions
from dreamerv3.agent.networks.heads import Policy
from dreamerv3.agent.networks.rssm import RSSM, State
from embodied.jax import nets

STARTS, STEPS, TOKENS = 5, 4, 6
SPACES = {
    'pick': elements.Space(np.int32, (), 0, 5),
    'force': elements.Space(np.float32, 2, -1, 1),
}


def build(spaces):
    agent = config.resolve(['--configs', 'debug'])[0].agent
    actions = Actions(spaces)

    def make(init):
        dyn = RSSM(init, TOKENS, actions.size, agent.dyn)
        feat = dyn.deter + dyn.stoch * dyn.classes
        return dyn, Policy(init, feat, actions, agent.policy)

    return jax.jit(lambda: nets.build(make, jax.random.key(0)))()


def perturbed(tree):
    """Biases and norms as training leaves them: not zeros and ones."""
    rng = np.random.default_rng(1)
    shift = lambda x: x + 0.3 * rng.standard_normal(x.shape, np.float32)
    return jax.tree.map(shift, tree)


def starts_and_noise(dyn, actions):
    key = jax.random.key(2)
    shape = (STEPS, STARTS, dyn.stoch, dyn.classes)
    deter = jax.random.normal(key, (STARTS, dyn.deter))
    stoch = jax.nn.one_hot(jnp.arange(STARTS)[:, None] % dyn.classes, dyn.classes)
    stoch = jnp.broadcast_to(stoch, (STARTS, dyn.stoch, dyn.classes))
    noise = jax.random.gumbel(key, shape), actions.noise(key, (STEPS, STARTS))
    return State(deter, stoch), noise


def plain(dyn, policy, state, noise):
    states, acts = [state], []
    for t in range(STEPS):
        state_noise, action_noise = jax.tree.map(lambda x, t=t: x[t], noise)
        acts.append(policy.actions.sample(policy(state.feat), action_noise))
        vector = policy.actions.vector(acts[-1], state.deter.dtype)
        state = dyn.imagine_step(state, vector, state_noise)
        states.append(state)
    stack = lambda *steps: jnp.stack(steps)
    return jax.tree.map(stack, *states), jax.tree.map(stack, *acts)


@pytest.mark.parametrize('names', [('pick',), ('force',), ('pick', 'force')])
def test_joined_products_imagine_the_same(names):
    dyn, policy = perturbed(build({name: SPACES[name] for name in names}))
    state, noise = starts_and_noise(dyn, policy.actions)
    ours, acts = jax.jit(behavior.imagine)(dyn, policy, state, noise)
    expected, expected_acts = jax.jit(plain)(dyn, policy, state, noise)
    np.testing.assert_array_equal(ours.stoch.round(), expected.stoch.round())
    np.testing.assert_allclose(ours.deter, expected.deter, atol=1e-5)
    assert acts.keys() == expected_acts.keys()
    for name in names:
        assert acts[name].dtype == expected_acts[name].dtype
        np.testing.assert_allclose(acts[name], expected_acts[name], atol=1e-5)


def scores(states):
    """A scalar that every imagined state has a part in."""
    feat = states.feat.astype(jnp.float32)
    weights = jax.random.normal(jax.random.key(3), feat.shape)
    return (weights * jnp.sin(feat)).sum()


def plain_scores(policy, dyn, state, noise):
    """The same with one step after the other, as JAX differentiates them."""
    states = [state]
    for t in range(STEPS):
        state_noise, action_noise = jax.tree.map(lambda x, t=t: x[t], noise)
        dists = policy(jax.lax.stop_gradient(states[-1].feat))
        acts = policy.actions.sample(dists, action_noise)
        vector = policy.actions.vector(acts, state.deter.dtype)
        states.append(dyn.imagine_step(states[-1], vector, state_noise))
    return scores(jax.tree.map(lambda *x: jnp.stack(x), *states))


@pytest.mark.parametrize('names', [('force',), ('pick', 'force')])
def test_gradients_through_the_model_are_those_of_single_steps(names):
    dyn, policy = perturbed(build({name: SPACES[name] for name in names}))
    state, noise = starts_and_noise(dyn, policy.actions)

    def through(policy):
        rollout = behavior.imagine(dyn, jax.lax.stop_gradient(policy), state, noise)
        dists = policy(rollout[0].feat[:-1])
        states = behavior.through_model(dyn, policy.actions, dists, rollout, noise)
        return scores(states)

    value, grads = jax.jit(jax.value_and_grad(through))(policy)
    plain_value, expected = jax.jit(jax.value_and_grad(plain_scores))(
        policy, dyn, state, noise
    )
    np.testing.assert_allclose(value, plain_value, rtol=1e-4)
    assert np.any(expected.means['force'].kernel)
    for ours, theirs in zip(*map(jax.tree.leaves, (grads, expected)), strict=True):
        np.testing.assert_allclose(
            ours, theirs, atol=1e-5 + 1e-4 * np.abs(theirs).max()
        )
