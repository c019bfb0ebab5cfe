"""Redundancy reduction: what it is derived from, whom it reaches, and what is left of
videos."""

import os
import pathlib
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import option_agents
import pytest

from dreamerv3.agent.model import Dreamer
from dreamerv3.agent.options import Barlow
from dreamerv3.agent.options.barlow import cross_correlation, redundancy_loss
from dreamerv3.agent.replay_context import cut_context
from embodied.core.errors import ConfigError
from embodied.jax.tree import Tree
from embodied.logging import read_records

ROOT = pathlib.Path(__file__).parents[3]
BARLOW = '--agent.representation=barlow'
DECODER = '--agent.barlow.decoder=True'
BOTH = ('image', 'vector')
EPS, OFF = 1e-5, 5e-4


def reference_loss(predicted, target):
    """In float64, by loops over pairs of columns."""
    count, total = predicted.shape[-1], 0.0
    columns = lambda x: np.float64(x).reshape(-1, count).T
    x, y = columns(predicted), columns(target)
    unit = lambda c: (c - c.mean()) / np.sqrt(c.var() + EPS)
    for i in range(count):
        for j in range(count):
            c = np.mean(unit(x[i]) * unit(y[j]))
            total += (1 - c) ** 2 if i == j else OFF * c**2
    return total


def our_loss(predicted, target):
    return redundancy_loss(cross_correlation(predicted, target, EPS), OFF)


def random_pair(seed=0):
    """[B, T, 4], of very different sizes; one column of each never changes."""
    rng = np.random.default_rng(seed)
    predicted, target = rng.standard_normal((2, 5, 6, 4)) * [1, 100, 0.01, 1] + 3
    target += 0.5 * predicted
    predicted[..., 3], target[..., 2] = 7.0, -2.0
    return np.float32(predicted), np.float32(target)


def test_loss_and_gradient_are_those_of_the_formula():
    predicted, target = random_pair()
    value, slope = jax.value_and_grad(our_loss)(predicted, target)
    np.testing.assert_allclose(value, reference_loss(predicted, target), rtol=1e-5)
    rng = np.random.default_rng(1)
    for column in range(3):
        direction = np.zeros(predicted.shape)
        direction[..., column] = rng.standard_normal(predicted.shape[:-1])
        # Steps that are small for the column.
        direction[..., column] *= predicted[..., column].std()
        at = lambda x, way=direction: reference_loss(predicted + x * way, target)
        measured = (at(1e-6) - at(-1e-6)) / 2e-6
        derived = np.sum(np.float64(slope) * direction)
        np.testing.assert_allclose(derived, measured, rtol=2e-4, err_msg=column)
    # A column without deviation has no correlation, and its slope is finite.
    assert np.isfinite(slope).all()


def test_correlations_are_those_of_numpy():
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((2, 50, 3)).astype(np.float32)
    y = y + x
    expected = np.corrcoef(x.T, y.T)[:3, 3:]
    np.testing.assert_allclose(cross_correlation(x, y, 0.0), expected, atol=1e-6)


def test_bfloat16_is_standardized_in_float32():
    # In bfloat16, a mean of values around 100 is off by about as much as they vary.
    rng = np.random.default_rng(0)
    x = jnp.asarray(100 + rng.standard_normal((512, 2)), jnp.bfloat16)
    matrix = cross_correlation(x, x, 0.0)
    assert matrix.dtype == jnp.float32
    np.testing.assert_allclose(jnp.diagonal(matrix), 1, rtol=1e-5)


@pytest.fixture(scope='module')
def reached():
    """Names of the networks that a loss has a gradient for, by loss."""
    flags = BARLOW, DECODER, '--jax.compute_dtype=float32'
    model, batch = option_agents.make_model(*flags, observations=BOTH)
    nets = model.init(jax.random.key(0))['params']

    @jax.jit
    def slope(nets, weights):
        """Of a weighted sum of the losses."""

        def total(nets):
            sequence = sequence_of(model, nets, batch)
            seen = model.observe(nets, sequence, jax.random.key(0))
            found, _ = model.world_losses(nets, sequence.batch, seen, jax.random.key(1))
            return sum(weights[k.split('/')[0]] * x.mean() for k, x in found.items())

        return jax.grad(total)(nets)

    any_of = lambda grad: any(map(np.any, jax.tree.leaves(grad)))
    kinds = ('rec', 'barlow', 'rew', 'con', 'dyn', 'rep')
    slopes = {one: slope(nets, {k: float(k == one) for k in kinds}) for one in kinds}
    return {
        loss: {name for name, x in vars(by_net).items() if any_of(x)}
        for loss, by_net in slopes.items()
    }


def sequence_of(model, nets, batch):
    batch = {k: jnp.asarray(batch[k]) for k in model.batch_keys}
    carry = model.init_train(option_agents.ROWS)
    return cut_context(batch, carry, model.context, nets.dyn, model.dtype)


def test_states_learn_from_the_projection_and_not_from_the_decoder(reached):
    assert reached['rec'] == {'dec'}
    assert reached['barlow'] == {'enc', 'dyn', 'own'}
    assert reached['rew'] == {'reward'}  # its output starts at zero
    assert reached['con'] == {'enc', 'dyn', 'cont'}


def test_tokens_that_are_predicted_learn_nothing_from_it():
    model, batch = option_agents.make_model(BARLOW, '--jax.compute_dtype=float32')
    nets = model.init(jax.random.key(0))['params']
    sequence = sequence_of(model, nets, batch)
    seen = model.observe(nets, sequence, jax.random.key(0))

    def loss(tokens, states):
        now = seen._replace(tokens=tokens, states=states)
        key = jax.random.key(1)
        losses, _ = model.world_losses(nets, sequence.batch, now, key)
        return losses['barlow'].mean()

    by_tokens, by_states = jax.grad(loss, (0, 1))(seen.tokens, seen.states)
    assert not np.any(by_tokens)
    assert np.any(by_states.deter) and np.any(by_states.stoch)


def test_parameters_are_a_projection_more_and_a_decoder_less():
    names = lambda model: set(Tree(model.example).names)
    make = lambda *flags: option_agents.make_model(*flags, observations=BOTH)[0]
    plain, without, beside = make(), make(BARLOW), make(BARLOW, DECODER)
    decoder = {name for name in names(plain) if name.startswith('dec.')}
    assert decoder and names(without) - names(plain) == {'own.barlow.kernel'}
    assert names(plain) - names(without) == decoder
    assert names(beside) - names(plain) == {'own.barlow.kernel'}
    kernel = without.example.own['barlow'].kernel
    assert kernel.shape == (without.feat_size, without.example.enc.size)


def test_it_learns_goes_on_exactly_after_a_save_and_is_reported():
    metrics, report = option_agents.resumes_exactly(BARLOW, DECODER, observations=BOTH)
    assert metrics['loss/barlow'] > 0 and -1 <= metrics['barlow/correlation'] <= 1
    assert report['loss/barlow'] > 0
    assert {'loss/rec/image', 'loss/rec/vector', 'open_loop/image'} <= set(report)


def test_the_loss_is_learned():
    """One batch again and again."""
    model, batch = option_agents.make_model(BARLOW, '--agent.opt.lr=1e-3')
    batch = {k: batch[k] for k in model.batch_keys}
    state = model.pack(model.init(jax.random.key(0)))
    carry, train = model.init_train(option_agents.ROWS), jax.jit(model.train)
    found = []
    for _ in range(60):
        key = jax.random.key(0)
        result = train(state, model.weights(state), carry, batch, key)
        state = result.state
        found.append(float(result.metrics['barlow/correlation']))
    assert abs(found[0]) < 0.5 and found[-1] > found[0] + 0.3, found


def test_options_are_those_of_the_loss():
    flags = '--agent.barlow.scale=3', '--agent.harmony=True'
    model, _ = option_agents.make_model(BARLOW, *flags)
    assert model.scale('barlow') == 3
    assert model.balanced['observation'] == ('barlow',)
    with pytest.raises(ConfigError, match="'barlo'.*decoder, barlow"):
        option_agents.make_model('--agent.representation=barlo')


def test_kernels_see_the_networks_that_they_compute():
    """They refuse other models, and here only this machine."""
    flags = BARLOW, '--agent.harmony=True', '--jax.kernels=on'
    with pytest.raises(ConfigError, match='they need a GPU'):
        option_agents.make_model(*flags, observations=BOTH)


def test_an_own_agent_keeps_its_head_and_its_loss(examples):
    """And without a decoder, reports have no videos."""
    flags = BARLOW, '--agent.harmony=True', '--agent.module=own_agent:FindReward'
    metrics, report = option_agents.resumes_exactly(*flags, observations=BOTH)
    for name in ('loss/found', 'loss/barlow', 'harmony/scalar/observation'):
        assert name in metrics and name in report
    left_out = ('loss/rec', 'open_loop')
    assert not any(name.startswith(left_out) for name in (*metrics, *report))


@pytest.mark.parametrize('flags', [(), (DECODER,)])
def test_a_bundle_acts_and_imagines_what_there_is(flags, tmp_path):
    task = '--task=toy_catch', '--env.toy.size=16'
    loaded = option_agents.export_and_load(tmp_path, BARLOW, *task, *flags)
    assert isinstance(loaded.model, Barlow)
    zeros = lambda spaces, lead: {
        k: np.zeros((*lead, *x.shape), x.dtype) for k, x in spaces.items()
    }
    action, _ = loaded.act(zeros(loaded.obs_space, ()))
    assert action.keys() == loaded.act_space.keys()
    seen, actions = zeros(loaded.obs_space, (3,)), zeros(loaded.act_space, (5,))
    future = loaded.imagine(seen, actions)
    assert future.reward.shape == future.cont.shape == (3,)
    assert set(future.frames) == ({'image'} if flags else set())


@pytest.mark.long
@pytest.mark.parametrize('task', ['toy_catch', 'toy_reach'])
@pytest.mark.parametrize('flags', [(), (DECODER,)])
def test_a_run_trains_and_reports(task, flags, tmp_path):
    command = [sys.executable, '-m', 'dreamerv3', 'train', '--configs', 'debug']
    options = [BARLOW, *flags, f'--task={task}', f'--logdir={tmp_path}']
    options += ['--run.steps=60', '--run.report_every=-1', '--run.log_every=-1']
    options += ['--env.toy.size=16', '--agent.report_videos=1']  # a video per update
    options += [r'--.*\.mults=2,2', r'--.*\.depth=4']
    done = subprocess.run(
        [*command, *options],
        env={**os.environ, 'PYTHONPATH': str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    records = read_records(tmp_path / 'metrics.jsonl')
    assert any(x.get('train/loss/barlow', 0) > 0 for x in records)
    assert any('report/barlow/correlation' in x for x in records)
    videos = list((tmp_path / 'videos').glob('report_open_loop*'))
    assert bool(videos) == bool(flags and task == 'toy_catch')


def test_the_class_stays_that_of_dreamer_without_the_option():
    model, _ = option_agents.make_model('--agent.barlow.decoder=True')
    assert type(model) is Dreamer
    assert model.example.own == {}
