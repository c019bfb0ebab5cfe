"""Layers: worked-out values, initial statistics, and the fast upsampling."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from embodied.jax import nets
from embodied.jax.nets import conv as convs
from embodied.jax.nets.norm import normalized_silu

TRUNCATED = 2 * 1.1368  # largest weight, in units of the standard deviation


def build(make, seed=0):
    return nets.build(make, jax.random.key(seed))


@pytest.mark.parametrize(
    ('make', 'shape', 'fan_in'),
    [
        (lambda init: nets.Linear(init, 300, 400), (300, 400), 300),
        (lambda init: nets.BlockLinear(init, 800, 1600, 8), (8, 100, 200), 800),
        (lambda init: nets.Conv(init, 16, 64), (5, 5, 16, 64), 25 * 16),
        (lambda init: nets.Conv(init, 16, 64, 'up'), (5, 5, 16, 64), 25 * 16),
    ],
    ids=['linear', 'block linear', 'conv', 'upsampling conv'],
)
def test_kernels_have_unit_gain_for_their_fan_in(make, shape, fan_in):
    layer = build(make)
    assert layer.kernel.shape == shape
    assert layer.kernel.dtype == jnp.float32
    weights = np.asarray(layer.kernel, np.float64) * np.sqrt(fan_in)
    assert abs(weights.std() - 1) < 0.02
    assert abs(weights.mean()) < 0.02
    assert 0.97 * TRUNCATED < np.abs(weights).max() <= TRUNCATED * (1 + 1e-6)
    assert not np.any(layer.bias)


def test_weights_are_normal_below_the_truncation():
    layer = build(lambda init: nets.Linear(init, 400, 400))
    weights = np.asarray(layer.kernel) * np.sqrt(400) / 1.1368
    # Of a normal cut at two deviations, 0.6827 / 0.9545 lies within one.
    assert abs((np.abs(weights) < 1).mean() - 0.6827 / 0.9545) < 0.005


@pytest.mark.parametrize('scale', [0.0, 0.01, 1.0])
def test_output_scale_multiplies_the_initial_weights(scale):
    full = build(lambda init: nets.Linear(init, 30, 40)).kernel
    scaled = build(lambda init: nets.Linear(init, 30, 40, scale)).kernel
    np.testing.assert_allclose(scaled, scale * full, rtol=1e-6)


def test_different_keys_give_different_weights():
    make = lambda init: nets.Linear(init, 3, 3)
    assert not np.allclose(build(make, 0).kernel, build(make, 1).kernel)
    np.testing.assert_array_equal(build(make, 0).kernel, build(make, 0).kernel)


def test_layers_of_a_stack_differ():
    first, second = build(lambda init: nets.MLP(init, 8, 8, 2)).layers
    weights = [np.ravel(x.linear.kernel) for x in (first, second)]
    assert not set(weights[0]) & set(weights[1])


def test_block_linear_keeps_the_groups_apart():
    layer = build(lambda init: nets.BlockLinear(init, 4, 2, 2))
    kernel = jnp.array([[[1.0], [2.0]], [[10.0], [20.0]]])
    layer = _replace(layer, kernel=kernel, bias=jnp.array([0.5, 0.0]))
    x = jnp.array([[1.0, 1.0, 2.0, 3.0]])
    assert layer(x).tolist() == [[3.5, 80.0]]


def test_norm_divides_by_the_root_mean_square():
    norm = _replace(nets.RMSNorm(2), scale=jnp.array([1.0, 2.0]))
    root = np.sqrt(12.5 + 1e-4)
    np.testing.assert_allclose(
        norm(jnp.array([3.0, 4.0])), [3 / root, 8 / root], rtol=1e-6
    )


def test_the_slope_of_a_norm_is_that_of_differences_in_double_precision():
    rng = np.random.default_rng(0)
    x, scale, grad, way = rng.standard_normal((4, 3, 6))
    scale = scale[:1]

    def value(x):
        x = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-4) * scale
        return (grad * x / (1 + np.exp(-x))).sum()

    expected = (value(x + 1e-6 * way) - value(x - 1e-6 * way)) / 2e-6
    ours = normalized_silu.pull(
        normalized_silu.slope(*map(jnp.float32, (x, scale))), jnp.float32(grad)
    )
    np.testing.assert_allclose((ours * way).sum(), expected, rtol=1e-5)


def test_norm_keeps_its_statistics_in_float32():
    # In bfloat16 a sum of 4096 equal squares would stop growing at 256 of them.
    x = jnp.full((4096,), 3.0, jnp.bfloat16)
    out = nets.RMSNorm(4096)(x)
    assert out.dtype == jnp.bfloat16
    assert np.all(out == 1)


@pytest.mark.parametrize('dtype', [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize(
    'make',
    [
        lambda init: nets.Linear(init, 4, 6),
        lambda init: nets.BlockLinear(init, 4, 6, 2),
        lambda init: nets.Layer(init, 4, 6),
        lambda init: nets.Conv(init, 4, 6),
        lambda init: nets.ConvLayer(init, 4, 6, 'down'),
        lambda init: nets.ConvLayer(init, 4, 6, 'up'),
    ],
    ids=['linear', 'block linear', 'layer', 'conv', 'pooled', 'upsampled'],
)
def test_computation_is_in_the_dtype_of_the_input(make, dtype):
    layer = build(make)
    out = layer(jnp.ones((2, 4, 4, 4), dtype))
    assert out.dtype == dtype
    assert all(x.dtype == jnp.float32 for x in jax.tree.leaves(layer))


def test_convolution_correlates_with_zero_padding():
    image = jnp.arange(9.0).reshape(1, 3, 3, 1)
    kernel = jnp.zeros((5, 5, 1, 1)).at[2, 3].set(1.0)  # the right neighbor
    layer = build(lambda init: nets.Conv(init, 1, 1))
    layer = _replace(layer, kernel=kernel, bias=jnp.array([0.5]))
    assert layer(image)[0, :, :, 0].tolist() == [
        [1.5, 2.5, 0.5],
        [4.5, 5.5, 0.5],
        [7.5, 8.5, 0.5],
    ]


def test_pooled_convolution_takes_the_largest_of_four():
    image = jnp.array([[1.0, 2, 0, 0], [4, 3, 0, 9]]).reshape(1, 2, 4, 1)
    kernel = jnp.zeros((5, 5, 1, 1)).at[2, 2].set(1.0)
    layer = build(lambda init: nets.Conv(init, 1, 1, 'down'))
    layer = _replace(layer, kernel=kernel, bias=jnp.array([0.5]))
    assert layer(image)[0, :, :, 0].tolist() == [[4.5, 9.5]]


def test_gradients_of_pooling_go_to_the_first_of_equals():
    x = jnp.array([[3.0, 5], [5, 5]]).reshape(1, 1, 2, 1, 2, 1)
    grad = jax.grad(lambda x: convs._largest(x, (2, 4)).sum())(x)
    assert grad.reshape(2, 2).tolist() == [[0.0, 1.0], [0.0, 0.0]]


@pytest.mark.parametrize(
    ('height', 'width', 'inp', 'out'), [(2, 2, 1, 1), (4, 6, 3, 2), (6, 4, 8, 3)]
)
def test_pooled_convolution_is_convolution_and_pooling(height, width, inp, out):
    def slow(x, kernel):
        y = convs.conv(x, kernel)
        return y.reshape(2, height // 2, 2, width // 2, 2, out).max((2, 4))

    _compare(convs.pooled_conv, slow, (2, height, width, inp), out)


@pytest.mark.parametrize(
    ('height', 'width', 'inp', 'out'), [(1, 1, 1, 1), (3, 3, 2, 3), (4, 6, 3, 2)]
)
def test_upsampled_convolution_is_repetition_and_convolution(height, width, inp, out):
    slow = lambda x, kernel: convs.conv(x.repeat(2, 1).repeat(2, 2), kernel)
    _compare(convs.upsampled_conv, slow, (2, height, width, inp), out)


def _compare(fast, slow, shape, out):
    """Values and gradients of two forms of a 5x5 convolution."""
    keys = jax.random.split(jax.random.key(0), 3)
    x = jax.random.normal(keys[0], shape)
    kernel = jax.random.normal(keys[1], (5, 5, shape[-1], out))
    weight = jax.random.normal(keys[2], slow(x, kernel).shape)
    np.testing.assert_allclose(fast(x, kernel), slow(x, kernel), rtol=1e-4, atol=1e-4)
    score = lambda fn: lambda *args: (weight * fn(*args)).sum()
    grad = lambda fn: jax.jit(jax.grad(score(fn), (0, 1)))(x, kernel)
    for one, two in zip(grad(fast), grad(slow), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-4)


def _replace(module, **values):
    where = lambda x: [getattr(x, name) for name in values]
    return eqx.tree_at(where, module, list(values.values()))
