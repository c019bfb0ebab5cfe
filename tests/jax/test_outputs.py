"""Predictions and losses: values worked out by hand or in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from embodied.jax import outputs

LOGITS = [[0.0, 1.0, -2.0], [3.0, 0.5, 0.5]]


# Squashing


@pytest.mark.parametrize(
    ('x', 'squashed'),
    [
        (0.0, 0.0),
        (1.0, np.log(2)),
        (-1.0, -np.log(2)),
        (np.e - 1, 1.0),
        (-999.0, -np.log(1000)),
        (1e-6, 1e-6),
    ],
)
def test_symlog_and_symexp_by_hand(x, squashed):
    np.testing.assert_allclose(outputs.symlog(jnp.float32(x)), squashed, rtol=1e-6)
    np.testing.assert_allclose(outputs.symexp(jnp.float32(squashed)), x, rtol=1e-5)


def test_symlog_has_slope_one_at_zero():
    assert jax.grad(outputs.symlog)(1e-9) == pytest.approx(1.0)


# Two-hot


@pytest.mark.parametrize('count', [5, 41, 255, 4, 254])
def test_bins_are_exactly_symmetric_and_reach_symexp_20(count):
    bins = outputs.symexp_bins(count)
    assert bins.dtype == np.float32
    assert np.array_equal(bins, -bins[::-1])
    assert np.all(np.diff(bins) > 0)
    line = np.linspace(-20, 20, count)
    expected = np.sign(line) * np.expm1(np.abs(line))
    np.testing.assert_allclose(bins, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ('target', 'weights'),
    [
        (0.0, [0, 0, 1, 0, 0]),  # on a bin
        (1.0, [0, 0, 0, 1, 0]),
        (0.25, [0, 0, 0.75, 0.25, 0]),  # between two
        (-3.25, [0.25, 0.75, 0, 0, 0]),
        (7.75, [0, 0, 0, 0.25, 0.75]),
        (10.0, [0, 0, 0, 0, 1]),  # on the last
        (1e9, [0, 0, 0, 0, 1]),  # outside
        (-1e9, [1, 0, 0, 0, 0]),
    ],
)
def test_twohot_weights_interpolate_between_neighbors_and_clip(target, weights):
    bins = np.array([-10.0, -1.0, 0.0, 1.0, 10.0], np.float32)
    encoded = outputs.TwoHot(jnp.zeros(5), bins).encode(jnp.float32(target))
    np.testing.assert_allclose(encoded, weights, rtol=1e-6)
    logits = jnp.array([1.0, 2.0, 3.0, 4.0, 5.0])
    loss = outputs.TwoHot(logits, bins).loss(jnp.float32(target))
    logp = np.arange(1.0, 6.0) - np.log(np.exp(np.arange(1.0, 6.0)).sum())
    np.testing.assert_allclose(loss, -(np.array(weights) * logp).sum(), rtol=1e-5)


def test_decoding_inverts_encoding_over_all_scales():
    bins = outputs.symexp_bins(255)
    size = np.logspace(-4, 8, 200, dtype=np.float32)
    target = np.concatenate([-size, [0], size])
    weights = outputs.TwoHot(jnp.zeros(255), bins).encode(jnp.asarray(target))
    np.testing.assert_allclose(weights.sum(-1), 1, rtol=1e-5)
    assert np.all((np.asarray(weights) > 0).sum(-1) <= 2)
    decoded = (np.float64(weights) * np.float64(bins)).sum(-1)
    np.testing.assert_allclose(decoded, target, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize('count', [5, 41, 255, 4, 254])
@pytest.mark.parametrize('level', [0.0, 3.7])
def test_equal_logits_predict_exactly_zero(count, level):
    bins = outputs.symexp_bins(count)
    pred = lambda logits: outputs.TwoHot(logits, bins).pred()
    logits = jnp.full((7, count), level)
    np.testing.assert_array_equal(pred(logits), 0)
    # A compiler that fuses products into sums must not change that.
    np.testing.assert_array_equal(jax.jit(pred)(logits), 0)


def test_mean_of_uneven_logits():
    bins = np.array([-10.0, 0.0, 10.0], np.float32)
    twohot = outputs.TwoHot(jnp.log(jnp.array([0.2, 0.3, 0.5])), bins)
    np.testing.assert_allclose(twohot.pred(), 3.0, rtol=1e-6)


@pytest.mark.parametrize('count', [5, 41, 255, 4, 254])
def test_bins_of_the_symlog_are_even_and_exactly_symmetric(count):
    bins = outputs.symlog_bins(count)
    assert bins.dtype == np.float32
    assert np.array_equal(bins, -bins[::-1])
    np.testing.assert_allclose(bins, np.linspace(-20, 20, count), atol=1e-5)


@pytest.mark.parametrize(
    ('squashed', 'weights'),
    [
        (0.0, [0, 0, 1, 0, 0]),
        (5.0, [0, 0, 0.5, 0.5, 0]),
        (-12.0, [0.2, 0.8, 0, 0, 0]),
        (20.0, [0, 0, 0, 0, 1]),
    ],
)
def test_symlog_weights_interpolate_between_logarithms(squashed, weights):
    bins = outputs.symlog_bins(5)
    target = np.float32(np.sign(squashed) * np.expm1(abs(squashed)))
    encoded = outputs.SymlogTwoHot(jnp.zeros(5), bins).encode(jnp.asarray(target))
    np.testing.assert_allclose(encoded, weights, atol=1e-6)
    logits = jnp.log(jnp.asarray(weights, jnp.float32) + 1e-30)
    decoded = outputs.SymlogTwoHot(logits, bins).pred()
    np.testing.assert_allclose(decoded, target, rtol=1e-5, atol=1e-6)


def test_symlog_predictions_are_zero_at_first_and_have_a_gradient_there():
    pred = lambda x: outputs.SymlogTwoHot(x, outputs.symlog_bins(255)).pred()
    logits = jnp.zeros((2, 255))
    np.testing.assert_array_equal(jax.jit(pred)(logits), 0)
    slope = jax.grad(lambda x: pred(x).sum())(logits)[:, -1]
    np.testing.assert_allclose(slope, 20 / 255, rtol=1e-5)
    part = outputs.SymlogTwoHot(logits, outputs.symlog_bins(255))[:1]
    assert type(part) is outputs.SymlogTwoHot


def test_twohot_of_bfloat16_is_computed_in_float32():
    twohot = outputs.TwoHot(jnp.zeros(41, jnp.bfloat16), outputs.symexp_bins(41))
    assert twohot.pred().dtype == twohot.loss(jnp.float32(1)).dtype == jnp.float32


# Categorical


def test_uniform_share_bounds_the_probabilities():
    dist = outputs.Categorical(jnp.array([100.0, 0.0, 0.0, 0.0]), unimix=0.01)
    np.testing.assert_allclose(dist.probs, [0.9925, 0.0025, 0.0025, 0.0025], rtol=1e-5)


def test_divergence_of_certain_and_uniform_variables():
    # Mixed: 0.995 and 0.005 against 0.5 and 0.5, for each of two variables.
    one = outputs.Categorical(jnp.array([[50.0, 0.0]] * 2), 0.01, event_rank=1)
    two = outputs.Categorical(jnp.zeros((2, 2)), 0.01, event_rank=1)
    expected = 2 * (0.995 * np.log(1.99) + 0.005 * np.log(0.01))
    np.testing.assert_allclose(one.kl(two), expected, rtol=1e-5)
    np.testing.assert_allclose(two.kl(two), 0, atol=1e-7)
    np.testing.assert_allclose(two.entropy(), 2 * np.log(2), rtol=1e-6)


@pytest.mark.parametrize(
    ('rank', 'shape'), [(0, (2, 3)), (1, (2,)), (2, ())], ids=['0', '1', '2']
)
def test_event_axes_are_summed(rank, shape):
    logits = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)
    dist = outputs.Categorical(jnp.asarray(logits), event_rank=rank)
    index = np.array([[0, 1, 2], [3, 2, 1]])
    logp = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    each = np.take_along_axis(logp, index[..., None], -1)[..., 0]
    expected = each.reshape(*shape, -1).sum(-1) if rank else each
    np.testing.assert_allclose(dist.logp(jnp.asarray(index)), expected, rtol=1e-5)
    np.testing.assert_allclose(dist.loss(jnp.asarray(index)), -expected, rtol=1e-5)
    assert dist.entropy().shape == dist.kl(dist).shape == shape
    assert dist.pred().shape == (2, 3)


@pytest.mark.parametrize('dtype', [bool, np.uint8, np.int32])
def test_classes_may_have_any_integer_type(dtype):
    dist = outputs.Categorical(jnp.log(jnp.array([[0.2, 0.8]])))
    logp = dist.logp(jnp.ones(1, dtype))
    np.testing.assert_allclose(logp, np.log([0.8]), rtol=1e-6)


def test_samples_follow_the_probabilities():
    probs = np.array([0.1, 0.2, 0.7])
    dist = outputs.Categorical(jnp.broadcast_to(jnp.log(probs), (20_000, 3)))
    gumbel = jax.random.gumbel(jax.random.key(0), (20_000, 3))
    frequency = np.bincount(dist.sample(gumbel)) / 20_000
    np.testing.assert_allclose(frequency, probs, atol=0.015)


def test_onehot_samples_are_exactly_one_and_zero():
    # Replay keeps them as class indices, so that nothing else may be in them.
    logits = jax.random.normal(jax.random.key(0), (1000, 8))
    gumbel = jax.random.gumbel(jax.random.key(1), (1000, 8))
    dist = outputs.Categorical(logits, 0.01)
    onehot = np.asarray(jax.jit(dist.sample_onehot)(gumbel))
    np.testing.assert_array_equal(onehot, np.eye(8)[dist.sample(gumbel)])


def test_the_first_of_equally_large_entries_is_the_largest():
    x = np.random.default_rng(0).integers(-3, 3, (1000, 5)).astype(np.float32)
    np.testing.assert_array_equal(outputs.first_largest(x), np.eye(5)[x.argmax(-1)])


def test_rounding_does_not_decide_what_is_largest():
    x = np.float32([1.0, 8.0, np.nextafter(np.float32(8), np.float32(9)), 7.9])
    np.testing.assert_array_equal(outputs.first_largest(x), [0, 1, 0, 0])


def test_straight_through_samples_have_the_gradient_of_the_probabilities():
    logits, weight = jnp.array(LOGITS), jnp.array([[1.0, -2.0, 3.0], [0.5, 0.1, 2.0]])
    gumbel = jax.random.gumbel(jax.random.key(0), logits.shape)

    def through(pick):
        return jax.grad(lambda x: (weight * pick(outputs.Categorical(x, 0.01))).sum())(
            logits
        )

    sampled = through(lambda dist: dist.sample_onehot(gumbel))
    np.testing.assert_allclose(sampled, through(lambda dist: dist.probs), rtol=1e-6)
    # By hand: d(0.99 softmax_i)/dx_j = 0.99 p_i (1[i = j] - p_j).
    probs = np.exp(LOGITS) / np.exp(LOGITS).sum(-1, keepdims=True)
    centered = np.asarray(weight) - (probs * weight).sum(-1, keepdims=True)
    np.testing.assert_allclose(sampled, 0.99 * probs * centered, rtol=1e-5)


def test_detached_distributions_have_no_gradient():
    def loss(x):
        dist = outputs.Categorical(x, 0.01, event_rank=1)
        return dist.detach().kl(outputs.Categorical(jnp.zeros((2, 3)), 0.01, 1))

    assert loss(jnp.array(LOGITS)) > 0
    assert not np.any(jax.grad(loss)(jnp.array(LOGITS)))


# Scalars and vectors


def test_bernoulli_takes_soft_targets():
    dist = outputs.Bernoulli(jnp.float32(np.log(3)))  # probability 3/4
    np.testing.assert_allclose(dist.prob(), 0.75, rtol=1e-6)
    expected = -(0.25 * np.log(0.75) + 0.75 * np.log(0.25))
    np.testing.assert_allclose(dist.loss(0.25), expected, rtol=1e-6)


@pytest.mark.parametrize('logit', [-200.0, 200.0])
def test_bernoulli_stays_finite_for_large_logits(logit):
    dist = outputs.Bernoulli(jnp.float32(logit))
    np.testing.assert_allclose(dist.loss(1.0 if logit < 0 else 0.0), 200, rtol=1e-6)


def test_normal_density_and_entropy():
    dist = outputs.Normal(jnp.array([0.0, 1.0]), jnp.array([1.0, 2.0]))
    expected = -0.5 - 0.5 - np.log(2) - np.log(2 * np.pi)
    np.testing.assert_allclose(dist.logp(jnp.array([1.0, 3.0])), expected, rtol=1e-6)
    np.testing.assert_allclose(
        dist.entropy(), np.log(2) + np.log(2 * np.pi * np.e), rtol=1e-6
    )
    assert dist.pred().tolist() == [0.0, 1.0]
    assert dist.sample(jnp.array([1.0, -1.0])).tolist() == [1.0, -1.0]


def test_normal_of_a_scalar_action_sums_nothing():
    dist = outputs.Normal(jnp.zeros(4), jnp.ones(4), event_rank=0)
    assert dist.logp(jnp.zeros(4)).shape == dist.entropy().shape == (4,)


def test_squared_error_is_summed_without_a_half():
    out = outputs.SquaredError(jnp.array([[1.0, 2.0], [3.0, 4.0]]), 1)
    assert out.loss(jnp.zeros((2, 2))).tolist() == [5.0, 25.0]


def test_squared_error_in_symlog_space_predicts_raw_values():
    out = outputs.SymlogSquaredError(jnp.array([np.log(2), 0.0]), 1)
    np.testing.assert_allclose(out.pred(), [1.0, 0.0], rtol=1e-6)
    target = jnp.array([3.0, -1.0])  # symlog: log 4, -log 2
    np.testing.assert_allclose(out.loss(target), 2 * np.log(2) ** 2, rtol=1e-5)
