"""LaProp and Adam with clipping and warm-up: hand-worked steps, and the oracle's."""

import types

import jax
import jax.numpy as jnp
import numpy as np
import optax
import oracle
import pytest

from dreamerv3 import config
from dreamerv3.agent.optimizer import Rates, clip_by_parameter_norm, make_optimizer
from embodied.jax.layout import Layout


def options(**changes):
    defaults = dict(config.resolve([])[0].agent.opt)
    return types.SimpleNamespace(**{**defaults, **changes})


def run(settings, params, grads):
    """Parameters after each update."""
    layout = Layout(jnp.asarray(params))
    optimizer = make_optimizer(settings, layout)
    update = jax.jit(optimizer.update)
    vector = layout.join(jnp.asarray(params))
    state, history = optimizer.init(vector), []
    for grad in grads:
        updates, state = update(layout.join(jnp.asarray(grad)), state, vector)
        vector = optax.apply_updates(vector, updates)
        history.append(np.asarray(layout.split(vector)))
    return history


@pytest.mark.parametrize(
    ('grad', 'param', 'expected'),
    [
        ([30.0, 40.0], [3.0, 4.0], [0.9, 1.2]),  # 50 > 0.3 * 5
        ([0.9, 1.2], [3.0, 4.0], [0.9, 1.2]),  # just at the limit
        ([0.3, 0.4], [3.0, 4.0], [0.3, 0.4]),  # below it
        ([-3.0, 4.0], [0.0, 0.0], [-1.8e-4, 2.4e-4]),  # 0.3 * the smallest norm
        ([0.0, 0.0], [3.0, 4.0], [0.0, 0.0]),
        ([[30.0], [40.0]], [[3.0], [4.0]], [[0.9], [1.2]]),  # norm of the whole matrix
    ],
)
def test_gradients_are_clipped_to_the_norm_of_their_tensor(grad, param, expected):
    tree = lambda x: {'x': jnp.array(x), 'other': jnp.ones(3)}
    layout = Layout(tree(param))
    clip = clip_by_parameter_norm(0.3, 1e-3, layout)
    grads, params = layout.join(tree(grad)), layout.join(tree(param))
    clipped, _ = clip.update(grads, clip.init(params), params)
    clipped = layout.split(clipped)
    np.testing.assert_allclose(clipped['x'], expected, rtol=1e-6)
    limit = 0.3 * np.sqrt(3)
    np.testing.assert_allclose(np.linalg.norm(clipped['other']), limit, rtol=1e-6)


def test_first_update_has_rate_zero_and_later_ones_follow_the_warmup():
    # A constant gradient, too small to be clipped, is normalized to exactly +-1.
    start = [50.0, 50.0]
    after = run(options(lr=0.5, warmup=2), start, [[2.0, -3.0]] * 4)
    steps = np.diff([start, *after], axis=0)
    expected = [[0, 0], [-0.25, 0.25], [-0.5, 0.5], [-0.5, 0.5]]
    np.testing.assert_allclose(steps, expected, rtol=1e-4)


def test_without_warmup_the_first_update_has_the_full_rate():
    after = run(options(lr=0.5, warmup=0), [50.0, 50.0], [[2.0, -3.0]])
    np.testing.assert_allclose(after[0], [49.5, 50.5], rtol=1e-6)


def test_momentum_averages_normalized_gradients():
    # With g then -g both have the same second moment, so they become +1 and -1; the
    # averages of them are 0.1 / 0.1 = 1 and (0.9 * 0.1 - 0.1) / (1 - 0.81) = -1 / 19.
    after = run(options(lr=0.5, warmup=0), [50.0], [[2.0], [-2.0]])
    steps = np.diff([[50.0], *after], axis=0)
    np.testing.assert_allclose(steps, [[-0.5], [0.5 / 19]], rtol=1e-3)


@pytest.mark.parametrize(
    ('kind', 'second'),
    [
        # The root of the second moment is sqrt(10.003) after 2 and -4. LaProp averages
        # 1 and -4 / 3.1628, Adam divides the average of 2 and -4 by 3.1628.
        ('laprop', (0.09 - 0.1 * 1.26471) / 0.19),
        ('adam', (0.09 * 2 - 0.1 * 4) / 0.19 / 3.16276),
    ],
)
def test_adam_averages_first_and_laprop_divides_first(kind, second):
    settings = options(kind=kind, lr=0.5, warmup=0, agc=0.0)
    after = run(settings, [50.0], [[2.0], [-4.0]])
    steps = np.diff([[50.0], *after], axis=0)
    np.testing.assert_allclose(steps, [[-0.5], [-0.5 * second]], rtol=1e-3)


@pytest.mark.parametrize('kind', ['laprop', 'adam'])
@pytest.mark.parametrize(
    ('own', 'expected'),
    [
        ({}, 0.5 * 2 / 3),
        ({'lr': 0.1}, 0.1 * 2 / 3),
        ({'eps': 6.0}, 0.5 * 2 / 8),
        ({'lr': 0.1, 'eps': 6.0}, 0.1 * 2 / 8),
    ],
    ids=str,
)
def test_tensors_have_a_rate_and_an_epsilon_of_their_own(kind, own, expected):
    settings = options(kind=kind, lr=0.5, warmup=0, agc=0.0, eps=1.0)
    params = {'model': jnp.full(3, 50.0), 'value': jnp.full(2, 50.0)}
    layout, usual = Layout(params), Rates(0.5, 1.0, 0.0)
    optimizer = make_optimizer(settings, layout, [usual, usual._replace(**own)])
    vector = layout.join(params)
    grads = layout.join(jax.tree.map(lambda x: jnp.full_like(x, 2.0), params))
    updates, _ = jax.jit(optimizer.update)(grads, optimizer.init(vector), vector)
    updates = layout.split(updates)
    np.testing.assert_allclose(updates['model'], -0.5 * 2 / 3, rtol=1e-5)
    np.testing.assert_allclose(updates['value'], -expected, rtol=1e-5)


def test_without_a_limit_gradients_stay_as_they_are():
    clip = clip_by_parameter_norm(0.0, 1e-3, Layout(jnp.ones(2)))
    grads = jnp.array([1e9, -1e9])
    clipped, _ = clip.update(grads, clip.init(grads), jnp.zeros(2))
    np.testing.assert_array_equal(clipped, grads)


def test_tensors_are_clipped_each_at_its_own_norm_or_not_at_all():
    # Norms of parameters are 5, of gradients 50, limits 0.3 * 5 and 0.5 * 5.
    tree = lambda *x: dict(zip('abc', map(jnp.array, x), strict=True))
    layout = Layout(tree(*[[3.0, 4.0]] * 3))
    params = layout.join(tree(*[[3.0, 4.0]] * 3))
    grads = layout.join(tree(*[[30.0, 40.0]] * 3))
    clip = clip_by_parameter_norm(np.float32([0.3, 0.0, 0.5]), 1e-3, layout)
    clipped, _ = clip.update(grads, clip.init(params), params)
    clipped = layout.split(clipped)
    np.testing.assert_allclose(clipped['a'], [0.9, 1.2], rtol=1e-6)
    np.testing.assert_array_equal(clipped['b'], [30.0, 40.0])
    np.testing.assert_allclose(clipped['c'], [1.5, 2.0], rtol=1e-6)


def test_gradients_of_zero_move_nothing():
    after = run(options(warmup=0), [1.0, 2.0], [[0.0, 0.0]] * 3)
    np.testing.assert_array_equal(after[-1], [1.0, 2.0])


@pytest.mark.parametrize('scale', [1e-6, 1e-2, 1.0, 1e4], ids=str)
@pytest.mark.parametrize('size', [0.0, 1e-4, 1.0], ids=str)
def test_updates_agree_with_the_oracle(scale, size):
    rng = np.random.default_rng(0)
    params = size * rng.standard_normal((6, 5)).astype(np.float32)
    # Sizes that change from update to update, so that clipping comes and goes.
    grads = [
        (scale * 10.0 ** rng.uniform(-2, 2) * rng.standard_normal((6, 5)))
        for _ in range(6)
    ]
    grads = [x.astype(np.float32) for x in grads]
    settings = options(lr=1e-2, warmup=3)
    expected = oracle.optimize(params, grads, lr=settings.lr, warmup=settings.warmup)
    history = [params, *run(settings, params, grads)]
    np.testing.assert_array_equal(history[1], params)
    for index, (one, two) in enumerate(zip(history[1:], expected, strict=True)):
        update, reference = one - history[index], two - [params, *expected][index]
        np.testing.assert_allclose(update, reference, atol=1e-6, rtol=1e-3)
