"""Returns and their range: worked out by hand, and against the oracle."""

import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracle import behavior as expected

from dreamerv3.agent.returns import Range, lambda_return, update_range

RANGE = types.SimpleNamespace(rate=0.01, low=5.0, high=95.0, limit=1.0)


def test_lambda_return_by_hand():
    reward = jnp.array([[9.0, 1.0, 2.0]])  # the first reward belongs to no return
    cont = jnp.array([[9.0, 0.5, 1.0]])
    mix = jnp.array([[9.0, 0.5, 0.5]])
    boot = jnp.array([[9.0, 4.0, 8.0]])
    # R_1 = 2 + (0.5 * 8 + 0.5 * 8) = 10;  R_0 = 1 + 0.5 (0.5 * 4 + 0.5 * 10) = 4.5
    assert lambda_return(reward, cont, mix, boot).tolist() == [[4.5, 10.0]]


@pytest.mark.parametrize(
    ('mix', 'returns'),
    [
        (0.0, [1 + 0.5 * 4, 2 + 0.5 * 8]),  # one step, then the value
        (1.0, [1 + 0.5 * (2 + 0.5 * 8), 2 + 0.5 * 8]),  # rewards to the end
    ],
)
def test_mix_goes_from_one_step_to_all_steps(mix, returns):
    reward = jnp.array([[9.0, 1.0, 2.0]])
    boot = jnp.array([[9.0, 4.0, 8.0]])
    cont = jnp.full((1, 3), 0.5)
    assert lambda_return(reward, cont, mix, boot).tolist() == [returns]


def test_nothing_counts_after_the_end_of_an_episode():
    reward = jnp.array([[0.0, 1.0, 100.0, 100.0]])
    cont = jnp.array([[1.0, 0.0, 1.0, 1.0]])
    boot = jnp.full((1, 4), 100.0)
    assert lambda_return(reward, cont, 0.95, boot)[0, 0] == 1


@pytest.mark.parametrize('length', [2, 3, 16, 65])
def test_lambda_returns_agree_with_the_oracle(length):
    rng = np.random.default_rng(length)
    reward, boot = rng.standard_normal((2, 3, length))
    cont, mix = rng.uniform(0, 1, (2, 3, length))
    args = [np.float32(x) for x in (reward, cont, mix, boot)]
    returns = jax.jit(lambda_return)(*args)
    np.testing.assert_allclose(
        returns, expected.lambda_return(reward, cont, mix, boot), rtol=1e-5, atol=1e-6
    )


def test_range_moves_by_its_rate_towards_the_percentiles():
    state = Range(jnp.float32(1), jnp.float32(2))
    # Of 0, 1, ..., 100 the percentiles are 5 and 95.
    new = update_range(state, jnp.arange(101.0).reshape(1, -1), RANGE)
    np.testing.assert_allclose(new, [0.99 + 0.05, 1.98 + 0.95], rtol=1e-6)


def test_percentiles_are_of_all_elements_with_interpolation():
    values = np.random.default_rng(0).standard_normal((7, 13)).astype(np.float32)
    state = (0.3, 0.7)
    new = update_range(Range(*map(jnp.float32, state)), jnp.asarray(values), RANGE)
    np.testing.assert_allclose(new, expected.update_range(state, values), rtol=1e-5)
