"""The loop with late gradients against a plain scan: values and gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from embodied.jax import recurrence
from embodied.jax.nets.linear import multiply
from embodied.jax.nets.norm import normalized_silu

STEPS, BATCH, WIDTH = 5, 3, 4


def step(memo, params, carry, x, fixed):
    """Products, one of them in blocks, a norm that knows its slope, and a reset that
    cuts the past off."""
    hidden, count = carry
    product = lambda name, x: memo(name, multiply, x, params[name])
    hidden = jnp.where(fixed[..., None], 0, hidden)
    hidden = hidden + memo('norm', normalized_silu, hidden, params['norm'])
    z = jnp.tanh(product('own', hidden) + product('blocks', x) + params['bias'])
    hidden = jnp.sin(product('out', z * params['scale'])) + 0.5 * hidden
    return (hidden, count + z.sum(-1)), {'z': z}


@pytest.fixture(scope='module')
def problem():
    rng = np.random.default_rng(0)
    normal = lambda *shape: jnp.asarray(rng.normal(0, 0.5, shape), jnp.float32)
    kernels = {
        'own': normal(WIDTH, WIDTH),
        'blocks': normal(2, WIDTH // 2, WIDTH // 2),
        'out': normal(WIDTH, WIDTH),
    }
    vectors = {name: normal(WIDTH) for name in ('bias', 'scale', 'norm')}
    params = {**kernels, **vectors}
    carry = (normal(BATCH, WIDTH), normal(BATCH))
    reset = jnp.asarray(rng.random((STEPS, BATCH)) < 0.3)
    return (params, carry, normal(STEPS, BATCH, WIDTH)), reset


def plain(params, carry, xs, fixed):
    def body(carry, inputs):
        carry, y = step(recurrence.compute, params, carry, *inputs)
        return carry, (carry, y)

    return jax.lax.scan(body, carry, (xs, fixed))[1]


def score(run, reset):
    """A number that all carries and outputs count in, each with its own weight."""

    def total(*args):
        leaves = jax.tree.leaves(run(*args, reset))
        weights = [jnp.cos(jnp.arange(x.size)).reshape(x.shape) for x in leaves]
        return sum((x * w).sum() for x, w in zip(leaves, weights, strict=True))

    return total


def assert_close(ours, expected, tolerance):
    for one, two in zip(jax.tree.leaves(ours), jax.tree.leaves(expected), strict=True):
        error = np.linalg.norm(one - two) / np.linalg.norm(two)
        assert error < tolerance


def test_values_and_gradients_are_those_of_a_plain_scan(problem):
    args, reset = problem
    ours = lambda *args: recurrence.scan(step, *args)
    assert_close(ours(*args, reset), plain(*args, reset), 1e-6)
    grad = lambda run: jax.jit(jax.grad(score(run, reset), (0, 1, 2)))(*args)
    assert_close(grad(ours), grad(plain), 1e-5)


def test_half_precision_stays_close_to_the_plain_scan_in_single_precision(problem):
    args, reset = problem
    half = jax.tree.map(lambda x: x.astype(jnp.bfloat16), args)
    ours = lambda *args: recurrence.scan(step, *args)
    grad = lambda run, args: jax.jit(jax.grad(score(run, reset), (0, 1, 2)))(*args)
    exact = grad(plain, args)
    rough = jax.tree.map(lambda x: x.astype(jnp.float32), grad(ours, half))
    assert_close(rough, exact, 0.05)


class OwnLoops:
    """The same loops as a scan has, to see that they are asked."""

    def __init__(self):
        self.calls = []

    def forward(self, params, carry, xs, fixed):
        self.calls.append('forward')
        return plain(params, carry, xs, fixed)

    def backward(self, params, grads, before, known, fixed):
        """Without the inputs of the steps, of which `known` has what counts."""
        self.calls.append('backward')
        assert set(known) == {'norm', 'own', 'blocks', 'out'}
        xs = jnp.full((STEPS, BATCH, WIDTH), jnp.nan)
        return recurrence._backward_loop(step, params, grads, before, known, xs, fixed)


def test_loops_of_their_own_give_values_and_gradients(problem):
    args, reset = problem
    loops = OwnLoops()
    own = lambda *args: recurrence.scan(step, *args, loops)
    usual = lambda *args: recurrence.scan(step, *args)
    ours, theirs = (
        jax.value_and_grad(score(run, reset), argnums=(0, 1, 2))(*args)
        for run in (own, usual)
    )
    assert loops.calls == ['forward', 'backward']
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
