"""Heads at the beginning of training, and the policy's distributions."""

import elements
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dreamerv3 import config
from dreamerv3.agent.actions import Actions
from dreamerv3.agent.networks.heads import BinaryHead, Policy, ScalarHead
from embodied.jax import nets

FEAT = 20
SPACES = {
    'pick': elements.Space(np.int32, (), 0, 5),
    'buttons': elements.Space(np.int32, 3, 0, 4),
    'force': elements.Space(np.float32, 2, -1, 1),
    'grip': elements.Space(np.float32, (), -1, 1),
}


def options(*flags):
    return config.resolve(['--configs', 'debug', *flags])[0].agent


def build(make):
    return jax.jit(lambda: nets.build(make, jax.random.key(0)))()


def features(scale=1.0):
    return scale * jax.random.normal(jax.random.key(1), (6, 7, FEAT))


@pytest.mark.parametrize(
    ('name', 'bins', 'dtype'),
    [
        ('reward', 255, jnp.float32),
        ('value', 255, jnp.bfloat16),
        ('value', 5, jnp.float32),
    ],
)
def test_reward_and_value_are_exactly_zero_at_first(name, bins, dtype):
    settings = options(f'--agent.{name}.bins', str(bins))[name]
    head = build(lambda init: ScalarHead(init, FEAT, settings))
    pred = jax.jit(lambda head, x: head(x).pred())(head, features(100.0).astype(dtype))
    assert pred.shape == (6, 7)
    assert pred.dtype == jnp.float32
    assert not np.any(pred)


def test_continue_is_a_probability_per_step():
    head = build(lambda init: BinaryHead(init, FEAT, options().cont))
    prob = jax.jit(lambda head, x: head(x).prob())(head, features())
    assert prob.shape == (6, 7)
    assert np.all((prob > 0) & (prob < 1))
    assert np.std(prob) > 0.01


@pytest.fixture(scope='module')
def policy():
    return build(lambda init: Policy(init, FEAT, Actions(SPACES), options().policy))


def test_policy_starts_close_to_uniform_and_centered(policy):
    dists = policy(features())
    np.testing.assert_allclose(dists['pick'].probs, 0.2, atol=0.01)
    np.testing.assert_allclose(dists['buttons'].probs, 0.25, atol=0.01)
    np.testing.assert_allclose(dists['force'].mean, 0, atol=0.05)
    start = 0.9 / (1 + np.exp(-2)) + 0.1
    np.testing.assert_allclose(dists['force'].std, start, atol=0.01)


def test_every_key_has_one_log_probability_and_entropy_per_step(policy):
    dists = policy(features())
    for name, space in SPACES.items():
        action = jnp.zeros((6, 7, *space.shape), space.dtype)
        assert dists[name].logp(action).shape == (6, 7), name
        assert dists[name].entropy().shape == (6, 7), name
        assert dists[name].pred().shape == action.shape, name


def test_probabilities_and_deviations_are_bounded(policy):
    large = jax.tree.map(lambda x: 1e4 * x, policy)
    dists = large(features())
    # 1 % of uniform probability in each class, at most all of the rest in one.
    for name, classes in (('pick', 5), ('buttons', 4)):
        low = 0.01 / classes
        np.testing.assert_allclose(dists[name].probs.min(), low, rtol=1e-3)
        np.testing.assert_allclose(dists[name].probs.max(), 0.99 + low, rtol=1e-3)
    np.testing.assert_allclose(dists['force'].std.min(), 0.1, rtol=1e-3)
    np.testing.assert_allclose(dists['force'].std.max(), 1.0, rtol=1e-3)
    assert np.abs(dists['force'].mean).max() <= 1


def test_the_uniform_share_is_an_option():
    settings = options('--agent.policy.unimix', '0').policy
    pick = {'pick': SPACES['pick']}
    policy = build(lambda init: Policy(init, FEAT, Actions(pick), settings))
    large = jax.tree.map(lambda x: 1e4 * x, policy)
    assert large(features())['pick'].probs.min() < 1e-6


@pytest.mark.parametrize('scale', [0.01, 1.0])
def test_the_scale_of_the_policys_output_is_an_option(scale):
    settings = options(f'--agent.policy.outscale={scale}', '--agent.policy.units=256')
    actions = Actions(SPACES)
    policy = build(lambda init: Policy(init, FEAT, actions, settings.policy))
    for layer in (*policy.logits.values(), *policy.means.values()):
        # Of a normal distribution that is cut off at two standard deviations.
        std = scale * np.sqrt(1 / 256)
        np.testing.assert_allclose(np.std(layer.kernel), std, rtol=0.15)
