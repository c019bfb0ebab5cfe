"""The oracle agrees with values worked out by hand and with plain properties."""

import numpy as np
import oracle
import pytest
from oracle import behavior, layers, outputs, world_model

SMALL = oracle.Problem(
    image=(16, 16, 3),
    depth=8,
    mults=(2, 3),
    vectors={'position': 3},
    tokens={'symbol': 5},
    discrete={'jump': 2},
    continuous={'move': 3},
)


def test_block_linear_keeps_the_groups_apart():
    p = {'kernel': np.array([[[2.0]], [[10.0]]]), 'bias': np.array([1.0, 0.0])}
    assert layers.block_linear(p, np.array([[3.0, 5.0]])).tolist() == [[7.0, 50.0]]


def test_norm_divides_by_the_root_mean_square():
    p = {'scale': np.array([1.0, 2.0])}
    normed = layers.rms_norm(p, np.array([3.0, 4.0]))
    root = np.sqrt(12.5 + 1e-4)
    np.testing.assert_allclose(normed, [3 / root, 8 / root], rtol=1e-14)


def test_convolution_correlates_with_zero_padding():
    image = np.arange(9.0).reshape(1, 3, 3, 1)
    kernel = np.zeros((5, 5, 1, 1))
    kernel[2, 3] = 1.0  # the right neighbor
    out = layers.conv({'kernel': kernel, 'bias': np.array([0.5])}, image)
    assert out[0, :, :, 0].tolist() == [
        [1.5, 2.5, 0.5],
        [4.5, 5.5, 0.5],
        [7.5, 8.5, 0.5],
    ]


def test_pooling_and_upsampling_work_on_patches_of_four():
    image = np.array([[1.0, 2, 0, 0], [4, 3, 0, 9]]).reshape(1, 2, 4, 1)
    assert layers.max_pool(image)[0, :, :, 0].tolist() == [[4.0, 9.0]]
    up = layers.upsample(np.array([[1.0, 2.0]]).reshape(1, 1, 2, 1))
    assert up[0, :, :, 0].tolist() == [[1.0, 1, 2, 2], [1, 1, 2, 2]]


@pytest.mark.parametrize('x', [0.0, 0.5, -0.5, 100.0, -1e6])
def test_symexp_inverts_symlog(x):
    np.testing.assert_allclose(layers.symexp(layers.symlog(x)), x, rtol=1e-12)


@pytest.mark.parametrize(
    ('target', 'expected'),
    [
        (0.0, [0, 1, 0]),
        (0.25, [0, 0.75, 0.25]),
        (-0.5, [0.5, 0.5, 0]),
        (1.0, [0, 0, 1]),
        (7.0, [0, 0, 1]),
        (-7.0, [1, 0, 0]),
    ],
)
def test_twohot_interpolates_between_neighbors_and_clips(target, expected):
    weights = outputs.twohot(np.array(target), np.array([-1.0, 0.0, 1.0]))
    assert weights.tolist() == expected


def test_equal_logits_predict_exactly_zero():
    assert outputs.twohot_mean(np.zeros(255)) == 0.0


def test_bins_are_exactly_symmetric_and_increasing():
    bins = outputs.twohot_bins(255)
    assert len(bins) == 255
    assert np.array_equal(bins, -bins[::-1])
    assert (np.diff(bins) > 0).all()
    np.testing.assert_allclose(bins[-1], np.exp(20) - 1)


def test_divergence_of_certain_and_uniform_classes():
    # Mixed: 0.995 and 0.005 against 0.5 and 0.5, for each of two variables.
    post = np.array([[50.0, 0.0], [50.0, 0.0]])
    expected = 2 * (0.995 * np.log(1.99) + 0.005 * np.log(0.01))
    np.testing.assert_allclose(outputs.kl(post, np.zeros((2, 2))), expected)
    assert outputs.latent_loss(post, post) == 1.0


def test_continue_loss_takes_soft_targets():
    expected = -0.25 * np.log(0.5) - 0.75 * np.log(0.5)
    np.testing.assert_allclose(outputs.bernoulli_loss(np.zeros(1), 0.25), expected)


def test_standard_normal_density_and_entropy():
    mean, std = np.zeros(2), np.ones(2)
    logp = outputs.normal_logp(mean, std, np.array([1.0, 0.0]))
    np.testing.assert_allclose(logp, -0.5 - np.log(2 * np.pi))
    np.testing.assert_allclose(outputs.normal_entropy(std), 1 + np.log(2 * np.pi))


def test_lambda_return_by_hand():
    rew = np.array([[9.0, 1.0, 2.0]])  # the first reward belongs to no return
    live = np.array([[9.0, 0.5, 1.0]])
    cont = np.array([[9.0, 0.5, 0.5]])
    boot = np.array([[9.0, 4.0, 8.0]])
    # R_1 = 2 + (0.5 * 8 + 0.5 * 8) = 10;  R_0 = 1 + 0.5 (0.5 * 4 + 0.5 * 10) = 4.5
    assert behavior.lambda_return(rew, live, cont, boot).tolist() == [[4.5, 10.0]]


def test_range_of_returns_moves_by_a_hundredth():
    lo, hi = behavior.update_range((1.0, 2.0), np.arange(101.0))
    np.testing.assert_allclose([lo, hi], [0.99 + 0.05, 1.98 + 0.95])


def test_first_update_has_rate_zero_and_later_ones_follow_the_warmup():
    # A constant gradient, too small to be clipped, is normalized to exactly +-1.
    grads = [np.array([2.0, -3.0])] * 4
    after = oracle.optimize(np.array([50.0, 50.0]), grads, lr=0.1, warmup=2)
    steps = np.diff([[50.0, 50.0], *after], axis=0)
    expected = [[0, 0], [-0.05, 0.05], [-0.1, 0.1], [-0.1, 0.1]]
    np.testing.assert_allclose(steps, expected, rtol=1e-9)


@pytest.mark.parametrize(
    ('param', 'large', 'clipped'),
    [
        ([3.0, 4.0], [30.0, 40.0], [0.9, 1.2]),  # 0.3 * ||(3, 4)|| = 1.5
        ([0.0, 0.0], [-3.0, 4.0], [-1.8e-4, 2.4e-4]),  # 0.3 * 1e-3, norm too small
    ],
)
def test_large_gradients_are_clipped_to_the_parameter_norm(param, large, clipped):
    # A small gradient before them, as the first one alone is normalized to +-1.
    small = np.array([1e-4, -2e-4])
    one, two = (
        oracle.optimize(np.array(param), [small, np.array(x)], warmup=1)
        for x in (large, clipped)
    )
    assert (one[-1] != param).all()
    np.testing.assert_allclose(one[-1], two[-1], rtol=1e-12)


def test_reset_forgets_state_and_action():
    rng = np.random.default_rng(0)
    tree = oracle.nest(oracle.fresh(rng, SMALL))
    p, state = tree['params']['dyn'], tree['in']['core']
    action, tokens = rng.standard_normal((2, 5)), rng.standard_normal((2, 400))
    tokens = tokens[:, : p['obs0']['kernel'].shape[0] - SMALL.deter]
    step = lambda *args: world_model.observe_step(p, *args)
    reset = step(state['deter'], state['stoch'], action, tokens, np.ones(2, bool))
    zeros = [np.zeros_like(x) for x in (state['deter'], state['stoch'], action)]
    fresh = step(*zeros, tokens, np.zeros(2, bool))
    for one, two in zip(reset, fresh, strict=True):
        np.testing.assert_array_equal(one, two)


def test_core_is_blind_to_the_size_of_actions_beyond_one():
    rng = np.random.default_rng(0)
    tree = oracle.nest(oracle.fresh(rng, SMALL))
    p, state = tree['params']['dyn'], tree['in']['core']
    step = lambda action: world_model.core(p, state['deter'], state['stoch'], action)
    large, one = np.full((2, 5), -30.0), np.full((2, 5), -1.0)
    np.testing.assert_array_equal(step(large), step(one))


def test_complex_steps_agree_with_central_differences():
    rng = np.random.default_rng(0)
    tree = oracle.nest(oracle.fresh(rng, SMALL))
    function = lambda params: oracle.wm_scalar(params, tree['in'])
    for name in ('dec.sp0.kernel', 'dec.vec.symbol.logits.bias', 'rew.mlp.norm0.scale'):
        value = oracle.flatten(tree['params'])[name]
        step = 1e-5 * rng.standard_normal(value.shape)
        ends = [
            function(oracle.replace(tree['params'], name, value + sign * step))
            for sign in (1, -1)
        ]
        derived = oracle.directional(function, tree['params'], name, step)
        np.testing.assert_allclose((ends[0] - ends[1]) / 2, derived, rtol=1e-5)


@pytest.mark.parametrize(
    'problem',
    [
        SMALL,
        oracle.Problem(image=None, vectors={'state': 6}, continuous={'torque': 1}),
        oracle.Problem(image=(48, 48, 1), discrete={'left': 3, 'right': 4}),
    ],
    ids=['mixed', 'vector', 'image'],
)
def test_fresh_inputs_give_finite_outputs_for_any_mix_of_keys(problem):
    outs = oracle.evaluate(oracle.fresh(np.random.default_rng(0), problem))
    assert all(np.isfinite(x).all() for x in outs.values())
    keys = {*problem.vectors, *problem.tokens, *(['image'] if problem.image else [])}
    assert {f'out.dec.loss.{k}' for k in keys} <= set(outs)


@pytest.mark.parametrize(
    ('size', 'expected'),
    [
        ((2048, 256, 16, 16, 256), 10_498_772),
        ((3072, 384, 24, 24, 384), 23_496_244),
        ((4096, 512, 32, 32, 512), 41_659_284),
        ((6144, 768, 48, 48, 768), 93_482_068),
        ((8192, 1024, 64, 64, 1024), 165_967_124),
        ((12288, 1536, 96, 96, 1536), 372_924_052),
    ],
)
def test_shapes_add_up_to_the_published_parameter_counts(size, expected):
    deter, hidden, classes, depth, units = size
    problem = oracle.Problem(
        deter=deter,
        hidden=hidden,
        stoch=32,
        classes=classes,
        depth=depth,
        units=units,
        bins=255,
        discrete={'action': 18},
    )
    assert oracle.count(problem) == expected


def test_shapes_add_up_to_the_published_count_without_an_image():
    problem = oracle.Problem(
        deter=512,
        hidden=64,
        stoch=32,
        classes=4,
        units=64,
        bins=255,
        image=None,
        vectors={'vector': 24},
        discrete={'action': 18},
    )
    assert oracle.count(problem) == 642_025
