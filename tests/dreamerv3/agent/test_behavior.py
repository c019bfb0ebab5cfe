"""Losses of policy and value on small rollouts that a person can work out."""

import functools

import jax.numpy as jnp
import numpy as np
import pytest

from dreamerv3 import config
from dreamerv3.agent import behavior
from dreamerv3.agent.returns import Range
from embodied.jax import outputs

BINS = np.array([-10.0, -1.0, 0.0, 1.0, 10.0], np.float32)


@functools.cache
def options():
    return config.resolve([])[0].agent


def certain(values):
    """Two-hot outputs that predict values of BINS, nearly surely."""
    index = np.searchsorted(BINS, values)
    return outputs.TwoHot(jnp.asarray(100.0 * np.eye(5)[index]), BINS)


def imagined(reward, cont, value, slow=None, logp=0.0, ranges=(0.0, 0.0)):
    """One rollout of two steps with a uniform policy over four actions."""
    one = lambda x: jnp.asarray(x, jnp.float32)[:, None]  # time first
    certainly = lambda x: certain(np.asarray(x)[:, None])
    slow = certainly(value[:-1]) if slow is None else slow
    losses, ret, new_ranges, metrics = behavior.imagined_losses(
        {'action': outputs.Categorical(jnp.zeros((2, 1, 4)))},
        certainly(value),
        slow,
        one(reward),
        one(cont),
        jnp.full((2, 1), logp),
        Range(*map(jnp.float32, ranges)),
        options(),
    )
    return losses, ret[:, 0], new_ranges, metrics


def test_without_advantage_the_policy_only_gains_entropy():
    losses, ret, _, _ = imagined([0, 0, 0], [1.0, 0.5, 1.0], [0.0, 0.0, 0.0], logp=-5.0)
    assert ret.tolist() == [0, 0]
    # Weights: c_0 = 1 and c_0 c_1 = 0.5. Entropy: log 4, times 3e-4.
    expected = -3e-4 * np.log(4) * np.array([1.0, 0.5])
    np.testing.assert_allclose(losses['policy'][:, 0], expected, rtol=1e-5)


def test_advantages_weigh_the_log_probability():
    losses, ret, ranges, metrics = imagined(
        [9.0, 2.0, 3.0], [0.5, 1.0, 1.0], [1.0, 1.0, 10.0], logp=-2.0
    )
    # R_1 = 3 + 10, R_0 = 2 + 0.05 * 1 + 0.95 * 13.
    returns = np.array([2 + 0.05 + 0.95 * 13, 13.0])
    np.testing.assert_allclose(ret, returns, rtol=1e-5)
    spread = 0.01 * 0.9 * (returns.max() - returns.min())  # 5 to 95 % of two values
    np.testing.assert_allclose(ranges.high - ranges.low, spread, rtol=1e-3)
    advantage = returns - 1  # the spread is below one, so nothing is divided
    expected = -0.5 * (-2.0 * advantage + 3e-4 * np.log(4))
    np.testing.assert_allclose(losses['policy'][:, 0], expected, rtol=1e-5)
    np.testing.assert_allclose(metrics['adv_mean'], advantage.mean(), rtol=1e-5)


def test_wide_returns_are_divided_by_their_range():
    args = ([9.0, 2.0, 3.0], [1.0, 1.0, 1.0], [1.0, 1.0, 10.0])
    narrow = imagined(*args, logp=-2.0)
    wide = imagined(*args, logp=-2.0, ranges=(-100.0, 100.0))
    scale = wide[2].high - wide[2].low
    assert 190 < scale < 200  # the old range counts 99 %
    ratio = wide[3]['adv_mean'] / narrow[3]['adv_mean']
    np.testing.assert_allclose(ratio, 1 / scale, rtol=1e-5)


def test_rollouts_from_terminal_states_weigh_nothing():
    losses, *_ = imagined([9.0, 2.0, 3.0], [0.0, 1.0, 1.0], [1.0, 1.0, 10.0], logp=-2.0)
    assert not np.any(losses['policy'])
    assert not np.any(losses['value'])


@pytest.mark.parametrize(
    ('slow', 'regularizer'),
    [(np.log([0.1, 0.2, 0.4, 0.2, 0.1]), 0.0), (100.0 * np.eye(5)[3], 1.0)],
    ids=['slow at zero', 'slow at one'],
)
def test_the_value_moves_to_return_and_slow_value(slow, regularizer):
    logits = np.log([0.1, 0.2, 0.4, 0.2, 0.1])  # mean 0
    value = outputs.TwoHot(jnp.asarray(np.tile(logits, (3, 1, 1)), jnp.float32), BINS)
    slow = outputs.TwoHot(jnp.asarray(np.tile(slow, (2, 1, 1)), jnp.float32), BINS)
    losses, *_ = behavior.imagined_losses(
        {'action': outputs.Categorical(jnp.zeros((2, 1, 4)))},
        value,
        slow,
        jnp.array([[0.0], [0.5], [0.0]]),
        jnp.array([[1.0], [0.0], [0.0]]),
        jnp.zeros((2, 1)),
        Range(jnp.float32(0), jnp.float32(0)),
        options(),
    )
    # R_0 = 0.5 lies between the bins 0 and 1; the slow value on a bin.
    to_return = -(0.5 * np.log(0.4) + 0.5 * np.log(0.2))
    to_slow = -np.log(0.2 if regularizer else 0.4)
    np.testing.assert_allclose(losses['value'][0, 0], to_return + to_slow, rtol=1e-5)


def test_replayed_returns_stop_at_the_end_of_episodes():
    # Steps: start, time limit (last, not terminal), a new episode that terminates.
    value = certain([[0.0, 0.0, 0.0, 0.0]])
    loss, ret = behavior.replayed_value_loss(
        value,
        value,
        jnp.array([[9.0, 10.0, 20.0, 30.0, 40.0]]),
        jnp.array([[9.0, 1.0, 0.0, 2.0, 3.0]]),
        jnp.array([[False, True, False, True, False]]),
        jnp.array([[False, False, False, True, False]]),
        options(),
    )
    discount = 1 - 1 / 333
    last = 3 + discount * 40
    expected = [
        1 + discount * 10,  # bootstraps from the value at the time limit
        0 + discount * (0.05 * 20 + 0.95 * 2),
        2.0,  # nothing after the terminal step
        last,
    ]
    np.testing.assert_allclose(ret[0], expected, rtol=1e-5)
    # The last steps of episodes are not trained on.
    assert np.array_equal(np.asarray(loss[0]) > 0, [True, False, True, False])
