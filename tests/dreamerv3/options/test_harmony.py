"""Learned weights of losses: what they are derived from, and where they end."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import option_agents
import pytest
import training_oracle

from dreamerv3.agent.model import Dreamer
from dreamerv3.agent.options import Harmony
from embodied.core.errors import ConfigError
from embodied.jax.tree import Tree

HARMONY = '--agent.harmony=True'
PARTS = {
    'observation': ('rec/image', 'rec/vector'),
    'reward': ('rew',),
    'dynamics': ('dyn', 'rep'),
}
MEANS = {
    'rec/image': 37.0,
    'rec/vector': 4.5,
    'rew': 0.2,
    'dyn': 3.0,
    'rep': 5.0,
    'con': 0.7,
    'policy': -0.3,
    'value': 6.0,
    'repval': 2.0,
}
SCALARS = {'observation': 2.5, 'reward': -0.75, 'dynamics': 0.5}


def model_with(*flags):
    return option_agents.make_model(HARMONY, *flags)[0]


def weighted(name):
    """A loss with its scale, in float64."""
    return training_oracle.SCALES.get(name, training_oracle.REC_SCALE) * MEANS[name]


def part_sums():
    return {part: sum(map(weighted, names)) for part, names in PARTS.items()}


def test_total_and_gradients_are_those_of_the_formula():
    model = model_with()
    nets = model.init(jax.random.key(0))['params']

    def total(scalars, means):
        own = {'harmony': scalars}
        return model.total(dataclasses.replace(nets, own=own), means)

    as_f32 = lambda tree: {k: jnp.float32(v) for k, v in tree.items()}
    args = as_f32(SCALARS), as_f32(MEANS)
    value, (by_scalar, by_mean) = jax.value_and_grad(total, (0, 1))(*args)
    sums, balanced = part_sums(), sum(PARTS.values(), ())
    expected = sum(weighted(name) for name in MEANS if name not in balanced)
    for part, s in SCALARS.items():
        expected += sums[part] / np.exp(s) + np.log(1 + np.exp(s))
        slope = np.exp(s) / (1 + np.exp(s)) - sums[part] / np.exp(s)
        np.testing.assert_allclose(by_scalar[part], slope, rtol=1e-5)
    np.testing.assert_allclose(value, expected, rtol=1e-6)
    part_of = {name: part for part, names in PARTS.items() for name in names}
    for name, mean in MEANS.items():
        factor = np.exp(-SCALARS[part_of[name]]) if name in part_of else 1
        slope = weighted(name) / mean * factor
        np.testing.assert_allclose(by_mean[name], slope, rtol=1e-5, err_msg=name)


def optimum(loss):
    """Where -L / x + x / (1 + x) = 0 for x = exp(s), which is x^2 - L x - L = 0."""
    return np.log((loss + np.sqrt(loss**2 + 4 * loss)) / 2)


@pytest.mark.parametrize('loss', [0.01, 1.0, 5000.0])
def test_the_optimum_worked_out_by_hand_has_no_slope(loss):
    s = optimum(loss)
    assert abs(np.exp(s) / (1 + np.exp(s)) - loss / np.exp(s)) < 1e-12


def test_scalars_approach_their_optimum_on_constant_losses():
    """With the learning rate and the warm-up of the defaults."""
    usual = ('--agent.opt.lr=4e-5', '--agent.opt.warmup=1000')
    model = model_with(*usual)
    means = {'rec/vector': 6.0, 'rew': 0.15, 'dyn': 1.5, 'rep': 2.0, 'con': 1.0}
    means = {k: jnp.float32(v) for k, v in means.items()}
    start = model.pack(model.init(jax.random.key(0)))

    def step(carry, _):
        params, opt = carry
        slope = jax.grad(model.total)(model.layout.split(params), means)
        updates, opt = model.optimizer.update(model.layout.join(slope), opt, params)
        params = optax.apply_updates(params, updates)
        return (params, opt), model.layout.split(params).own['harmony']

    run = jax.jit(lambda *x: jax.lax.scan(step, x, None, 5000))
    _, path = run(start['params'], start['opt'])
    warm = {part: abs(s[999]) for part, s in path.items()}
    # The rate rises from 0 during the warm-up, so no scalar runs ahead of the networks.
    assert all(0.1 < s <= 0.5001 for s in warm.values()), warm
    losses = {'observation': 6.0, 'reward': 0.15, 'dynamics': 1.5 + 0.1 * 2.0}
    for part, loss in losses.items():
        left = abs(path[part][-1] - optimum(loss))
        assert left < 0.05 * abs(optimum(loss)), (part, path[part][-1])


def test_three_parameters_are_added_and_trained_at_their_own_rate():
    names = Tree(model_with().example).names
    plain = Tree(option_agents.make_model()[0].example).names
    added = [f'own.harmony.{part}' for part in sorted(PARTS)]
    assert sorted(set(names) - set(plain)) == added
    model = model_with('--agent.opt.harmony_lr=0.5')
    example = jax.tree.leaves(model.example.own)
    assert [(x.shape, x.dtype) for x in example] == [((), jnp.float32)] * 3
    for name in names:
        rates = model.rates(name)
        expected = (0.5, 0.0) if name in added else (1e-2, model.config.opt.agc)
        assert (rates.lr, rates.agc) == expected, name


def test_losses_without_a_weight_have_no_scalar():
    model = model_with('--agent.loss_scales.rew=0', '--agent.loss_scales.rep=0')
    assert set(model.balanced) == {'observation', 'dynamics'}
    assert set(model.example.own['harmony']) == {'observation', 'dynamics'}


def test_training_moves_the_scalars_and_goes_on_exactly_after_a_save():
    flags = HARMONY, '--agent.opt.harmony_lr=0.125', '--jax.compute_dtype=bfloat16'
    metrics, report = option_agents.resumes_exactly(*flags)
    for part in PARTS:
        # Losses far from their optimum: 5 updates before this one, each at the rate.
        scalar = metrics[f'harmony/scalar/{part}']
        assert 0.25 < abs(scalar) <= 5 * 0.125 + 1e-3, part
        weight = metrics[f'harmony/weight/{part}']
        np.testing.assert_allclose(weight, np.exp(-scalar), rtol=1e-5)
        assert f'harmony/weight/{part}' in report


def test_a_bundle_keeps_the_scalars(tmp_path):
    loaded = option_agents.export_and_load(tmp_path, HARMONY, '--task=toy_reach')
    assert isinstance(loaded.model, Harmony)
    obs = {k: np.zeros(x.shape, x.dtype) for k, x in loaded.obs_space.items()}
    assert loaded.act(obs)[0]['action'].shape == (2,)


def test_an_own_agent_keeps_its_networks_beside_the_scalars(examples):
    flags = HARMONY, '--agent.module=own_agent:FindReward'
    model, _ = option_agents.make_model(*flags)
    assert type(model).__name__ == 'FindReward' and isinstance(model, Harmony)
    assert set(model.example.own) == {'found', 'harmony'}
    scale, means = {'found': jnp.float32(3)}, {'rew': jnp.float32(5)}
    nets = model.init(jax.random.key(0))['params']
    # A scalar of 0 costs log 2.
    total = float(model.total(nets, scale | means))
    assert total == pytest.approx(3 + 5 + 3 * np.log(2))


def test_a_name_that_an_own_agent_has_taken_is_explained():
    class Taken(Dreamer):
        def make_nets(self, init):
            return dataclasses.replace(super().make_nets(init), own={'harmony': {}})

    kind = type('Both', (Harmony, Taken), {})
    model, _ = option_agents.make_model(HARMONY, kind=kind)
    with pytest.raises(ConfigError, match="'harmony'.*another name"):
        model.example  # noqa: B018


def test_the_default_agent_has_none_of_this():
    model, _ = option_agents.make_model()
    assert type(model) is Dreamer and model.example.own == {}
