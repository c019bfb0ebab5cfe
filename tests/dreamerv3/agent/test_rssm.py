"""The recurrent model: resets, samples, one step against many, precision."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dreamerv3 import config
from dreamerv3.agent.networks.rssm import FEW_CLASSES, RSSM, Sample, State
from embodied.jax import nets, recurrence

TOKENS, ACTIONS = 6, 5
BATCH, LENGTH = 3, 4
FORCE = 1e6  # Gumbel noise that decides every sample


@pytest.fixture(scope='module')
def dyn():
    dyn = config.resolve(['--configs', 'debug'])[0].agent.dyn
    make = lambda init: RSSM(init, TOKENS, ACTIONS, dyn)
    return jax.jit(lambda: nets.build(make, jax.random.key(0)))()


@pytest.fixture(scope='module')
def recorded(dyn):
    """state, tokens, action, reset, gumbel of random steps, the middle one a reset."""
    rng = np.random.default_rng(0)
    normal = lambda *shape: jnp.asarray(rng.standard_normal(shape, np.float32))
    reset = np.zeros((BATCH, LENGTH), bool)
    reset[0, 2] = True
    classes = rng.integers(0, dyn.classes, (BATCH, LENGTH, dyn.stoch))
    return (
        State(normal(BATCH, dyn.deter), onehot(classes[:, 0], dyn)),
        normal(BATCH, LENGTH, TOKENS),
        normal(BATCH, LENGTH, ACTIONS),
        jnp.asarray(reset),
        FORCE * onehot(rng.integers(0, dyn.classes, classes.shape), dyn),
    )


@jax.jit
def observe(dyn, *recorded):
    return dyn.observe(*recorded)


@jax.jit
def imagine_step(dyn, state, action, gumbel):
    return dyn.imagine_step(state, action, gumbel)


def onehot(index, dyn):
    return jnp.asarray(np.eye(dyn.classes, dtype=np.float32)[index])


def cut(recorded, part):
    """The same steps of the whole batch, but only a part of them."""
    return [x[:, part] for x in recorded[1:]]


def test_noise_decides_the_samples(dyn, recorded):
    states, logit = observe(dyn, *recorded)
    np.testing.assert_array_equal(states.stoch, recorded[-1] / FORCE)
    assert logit.dtype == jnp.float32


def test_samples_and_their_gradients_are_those_of_the_distribution(dyn):
    rng = np.random.default_rng(1)
    shape = (BATCH, dyn.stoch, dyn.classes)
    logit, weight = (jnp.asarray(rng.normal(0, 3, shape), jnp.float32) for _ in '12')
    gumbel = jnp.asarray(rng.gumbel(size=shape), jnp.float32)
    ours = lambda x: dyn._sample(recurrence.compute, x, gumbel, jnp.float32)
    expected = lambda x: dyn.dist(x).sample_onehot(gumbel)
    np.testing.assert_allclose(ours(logit), expected(logit), atol=1e-6)
    grad = lambda fn: jax.grad(lambda x: (weight * fn(x)).sum())(logit)
    np.testing.assert_allclose(grad(ours), grad(expected), atol=1e-6)


def test_a_sequence_is_its_steps_one_after_the_other(dyn, recorded):
    whole, logits = observe(dyn, *recorded)
    state = recorded[0]
    for t in range(LENGTH):
        states, logit = observe(dyn, state, *cut(recorded, slice(t, t + 1)))
        state = jax.tree.map(lambda x: x[:, 0], states)
        np.testing.assert_allclose(state.deter, whole.deter[:, t], rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(logit[:, 0], logits[:, t], rtol=1e-4, atol=1e-5)


def test_blocks_as_whole_matrices_give_the_same_values_and_gradients(dyn, recorded):
    weight = jnp.asarray(np.random.default_rng(2).normal(size=dyn.deter), jnp.float32)

    def total(dyn, dense):
        kernels = dyn.kernels(jnp.float32, dense)
        states, logit = dyn.observe(*recorded, kernels)
        return (weight * states.deter).sum() + (logit**2).sum()

    step = jax.jit(jax.value_and_grad(total), static_argnums=1)
    (value, grads), (plain, expected) = step(dyn, True), step(dyn, False)
    np.testing.assert_allclose(value, plain, rtol=1e-5)
    for ours, theirs in zip(*map(jax.tree.leaves, (grads, expected)), strict=True):
        scale = float(jnp.abs(theirs).max())
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5 * scale)


def test_a_reset_forgets_state_and_action_and_only_in_its_own_row(dyn, recorded):
    with_reset, _ = observe(dyn, *recorded)
    tail = cut(recorded, slice(2, None))
    tail[1] = tail[1].at[0, 0].set(0)  # no action before the first step
    fresh, _ = observe(dyn, dyn.initial(BATCH, jnp.float32), *tail)
    np.testing.assert_allclose(
        with_reset.deter[0, 2:], fresh.deter[0], rtol=1e-4, atol=1e-6
    )
    state, tokens, action, reset, gumbel = recorded
    without, _ = observe(dyn, state, tokens, action, reset & False, gumbel)
    np.testing.assert_array_equal(with_reset.deter[1:], without.deter[1:])
    assert not np.allclose(with_reset.deter[0, 2:], without.deter[0, 2:])


@pytest.mark.parametrize('garbage', [1e30, np.nan, np.inf])
def test_nothing_before_a_reset_leaks_through_it(dyn, recorded, garbage):
    state, tokens, action, reset, gumbel = recorded
    clean, _ = observe(dyn, *recorded)
    wild = State(*(jnp.full_like(x, garbage) for x in state))
    reset = reset.at[:, 0].set(True)
    loud, _ = observe(dyn, wild, tokens, action.at[:, 0].set(garbage), reset, gumbel)
    quiet, _ = observe(dyn, state, tokens, action, reset, gumbel)
    np.testing.assert_array_equal(loud.deter, quiet.deter)
    assert not np.allclose(clean.deter, quiet.deter)


def test_no_gradient_flows_through_a_reset(dyn, recorded):
    def late(state, action):
        args = (state, recorded[1], action, *recorded[3:])
        return dyn.observe(*args)[0].deter[:, 2:].sum()

    grad = jax.jit(jax.grad(late, (0, 1)))
    state, action = grad(recorded[0], recorded[2])
    assert not np.any(state.deter[0])
    assert not np.any(state.stoch[0])
    assert not np.any(action[0, :3])
    assert np.all(np.any(np.asarray(state.deter[1:]), -1))
    assert np.all(np.any(np.asarray(action[1:]), -1))


def test_imagination_is_its_steps_one_after_the_other(dyn, recorded):
    state, _, action, _, gumbel = recorded
    whole = jax.jit(lambda dyn, *args: dyn.imagine(*args))(dyn, state, action, gumbel)
    for t in range(LENGTH):
        state = imagine_step(dyn, state, action[:, t], gumbel[:, t])
        np.testing.assert_allclose(state.deter, whole.deter[:, t], rtol=1e-4, atol=1e-6)
        np.testing.assert_array_equal(state.stoch, whole.stoch[:, t])


def test_imagination_samples_from_the_prior(dyn, recorded):
    state, _, action, _, gumbel = recorded
    state = imagine_step(dyn, state, action[:, 0], jnp.zeros_like(gumbel[:, 0]))
    prior = dyn.prior_of(state.deter)
    np.testing.assert_array_equal(state.stoch.argmax(-1), prior.argmax(-1))


def test_actions_count_by_direction_beyond_one(dyn, recorded):
    state, _, action, _, gumbel = recorded
    large = imagine_step(dyn, state, jnp.full_like(action[:, 0], -30.0), gumbel[:, 0])
    one = imagine_step(dyn, state, jnp.full_like(action[:, 0], -1.0), gumbel[:, 0])
    half = imagine_step(dyn, state, jnp.full_like(action[:, 0], -0.5), gumbel[:, 0])
    np.testing.assert_allclose(large.deter, one.deter, rtol=1e-5)
    assert not np.allclose(half.deter, one.deter)


def test_bfloat16_stays_close_to_float32(dyn, recorded):
    exact, logits = observe(dyn, *recorded)
    half = lambda x: x.astype(jnp.bfloat16)
    state, tokens, action, reset, gumbel = recorded
    rough, rough_logits = observe(
        dyn, jax.tree.map(half, state), half(tokens), half(action), reset, gumbel
    )
    assert rough.deter.dtype == rough.stoch.dtype == jnp.bfloat16
    assert rough_logits.dtype == jnp.float32
    np.testing.assert_allclose(np.float32(rough.deter), exact.deter, atol=0.05)
    np.testing.assert_allclose(rough_logits, logits, atol=0.1)


@pytest.mark.parametrize('classes', [4, FEW_CLASSES, FEW_CLASSES + 1])
def test_the_slope_of_a_sample_is_that_of_its_probabilities(classes):
    rng = np.random.default_rng(0)
    logit, grad, way = rng.standard_normal((3, 2, classes))

    def value(logit):  # in double precision
        probs = np.exp(logit) / np.exp(logit).sum(-1, keepdims=True)
        return (grad * (0.9 * probs + 0.1 / classes)).sum()

    expected = (value(logit + 1e-6 * way) - value(logit - 1e-6 * way)) / 2e-6
    sample, noise = Sample(unimix=0.1), jnp.zeros((2, classes))
    slope = sample.slope(jnp.float32(logit), noise)
    ours = sample.pull(slope, jnp.float32(grad))
    np.testing.assert_allclose((ours * way).sum(), expected, rtol=1e-5)
    late = jax.vjp(lambda x: sample(x, noise), jnp.float32(logit))[1]
    np.testing.assert_allclose(ours, late(jnp.float32(grad))[0], atol=1e-6)
