"""Gradients through the model: what they are derived from, and whom they reach."""

import agent_outputs
import agents
import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest
from oracle import heads, outputs, traced, world_model

from dreamerv3 import config
from dreamerv3.agent.model import Dreamer
from dreamerv3.agent.networks.rssm import State
from dreamerv3.agent.optimizer import Rates
from dreamerv3.agent.replay_context import Sequence
from dreamerv3.agent.returns import Range
from embodied.core.errors import ConfigError
from embodied.jax.outputs import Bernoulli, SymlogTwoHot, TwoHot, symexp_bins
from embodied.jax.tree import Tree

ROLLOUTS, STEPS = 3, 4
BINS = 255
HEADS = ('reward', 'value')
PROBLEM = oracle.Problem(
    image=None,
    vectors={'position': 3},
    discrete={'jump': 2},
    continuous={'move': 3},
)


def random_rollout(rng, params):
    """States [N, H + 1] of the model in float64, with actions of the policy."""
    stoch, classes = PROBLEM.stoch, PROBLEM.classes
    draw = lambda: np.eye(classes)[rng.integers(0, classes, (ROLLOUTS, stoch))]
    state = (rng.standard_normal((ROLLOUTS, PROBLEM.deter)), draw())
    states, acts = [], []
    for _ in range(STEPS + 1):
        states.append(state)
        feat = heads.feature(*state)
        any_act = {
            'jump': rng.integers(0, 2, ROLLOUTS),
            'move': np.zeros((ROLLOUTS, 3)),
        }
        move = heads.policy_scores(params['pol'], feat, any_act)['move']
        noise = rng.standard_normal(move['mean'].shape)
        acts.append({**any_act, 'move': move['mean'] + move['std'] * noise})
        action = world_model.concat_actions(acts[-1], PROBLEM.discrete)
        state = (world_model.core(params['dyn'], *state, action), draw())
    deter, onehot = (np.stack(x, 1) for x in zip(*states, strict=True))
    act = {k: np.stack([x[k] for x in acts], 1) for k in acts[0]}
    return {'deter': deter, 'stoch': onehot, 'act': act}


def test_the_oracle_derives_what_finite_differences_measure():
    rng = np.random.default_rng(0)
    data = oracle.fresh(rng, PROBLEM)
    params = jax.tree.map(np.float64, oracle.nest(data)['params'])
    rollout = random_rollout(rng, params)
    assert (np.abs(rollout['act']['move']) > 1).any()  # where actions are limited
    loss = lambda p: traced.traced_policy_loss(
        p['pol'], params, rollout, PROBLEM.discrete
    ).mean()
    step = 1e-5
    for name, value in oracle.flatten(params['pol']).items():
        name, direction = f'pol.{name}', rng.standard_normal(value.shape)
        moved = lambda x, name=name, value=value, direction=direction: loss(
            oracle.replace(params, name, value + x * direction)
        )
        measured = (moved(step) - moved(-step)) / (2 * step)
        derived = oracle.directional(loss, params, name, direction)
        np.testing.assert_allclose(derived, measured, rtol=1e-5, atol=1e-10)
        assert measured != 0, name


@pytest.fixture(scope='module')
def gradients():
    """Of the policy loss, for every network."""
    data = oracle.fresh(np.random.default_rng(0), PROBLEM, batch=2, length=3)
    flags = ('--agent.imag_length=2', '--agent.policy_grad=backprop')
    setup = agent_outputs.setup(PROBLEM, data, *flags)
    model, inputs, zero = setup.model, setup.inputs, jnp.zeros(())
    fixed = {'slow': setup.slow, 'ranges': Range(zero, zero)}
    start = State(*(x[:, 0] for x in setup.feat))
    sequence = Sequence(inputs['obs'], inputs['act'], start)

    def loss(nets):
        states = model.observe(nets, sequence, jax.random.key(0)).states
        losses, *_ = model.behavior_losses(
            nets, fixed, states, inputs['obs'], jax.random.key(1)
        )
        return losses['policy'].mean()

    return vars(jax.jit(jax.grad(loss))(setup.nets))


def test_gradients_through_the_model_train_the_policy_alone(gradients):
    any_of = lambda grad: any(map(np.any, jax.tree.leaves(grad)))
    assert {name for name, grad in gradients.items() if any_of(grad)} == {'policy'}
    assert all(map(np.any, jax.tree.leaves(gradients['policy'])))


def logits_around(value, far):
    """Logits of a head that is sure of a value, but for one probability far away."""
    bins = symexp_bins(BINS)
    probs = np.full(BINS, 1e-30)
    probs[np.abs(bins - value).argmin()] = 1.0
    probs[-1] = far
    return jnp.log(jnp.asarray(probs / probs.sum(), jnp.float32))


def test_a_tiny_probability_far_away_dominates_the_mean_but_not_what_is_derived():
    bins = symexp_bins(BINS)
    logits = logits_around(2.0, far=1e-8)
    slope = lambda pred: jax.grad(lambda x: pred(TwoHot(x, bins)))(logits)[-1]
    assert slope(TwoHot.pred) > 1
    assert 0 < slope(TwoHot.smooth_pred) < 1e-5


@pytest.mark.parametrize('value', [-1000.0, -3.0, 0.0, 0.5, 2.0, 700.0])
def test_a_sure_head_predicts_the_same_either_way(value):
    out = TwoHot(logits_around(value, far=0.0), symexp_bins(BINS))
    np.testing.assert_allclose(out.smooth_pred(), out.pred(), rtol=1e-3, atol=1e-5)
    expected = outputs.twohot_smooth_mean(np.float64(out.logits))
    np.testing.assert_allclose(out.smooth_pred(), expected, rtol=1e-4, atol=1e-5)


def test_a_fresh_head_predicts_zero_and_can_be_derived_there():
    pred = lambda x: TwoHot(x, symexp_bins(BINS)).smooth_pred()
    logits = jnp.zeros(BINS)
    assert pred(logits) == 0
    np.testing.assert_allclose(jax.grad(pred)(logits)[-1], 20 / BINS, rtol=1e-3)


def test_hard_continues_are_zero_or_one_times_the_discount():
    model, _ = model_of(('force',), '--agent.cont.hard=True', '--agent.horizon=4')
    out = Bernoulli(jnp.array([-9.0, -0.1, 0.1, 9.0]))
    continues = model._imagined_continue(out)
    np.testing.assert_allclose(continues, [0, 0, 0.75, 0.75])


@pytest.mark.parametrize('name', ['reward', 'value'])
def test_reward_and_value_choose_the_space_of_their_bins(name):
    model, _ = model_of(('force',), f'--agent.{name}.twohot=symlog')
    nets = model.init(jax.random.key(0))['params']
    kinds = {k: type(getattr(nets, k)(jnp.zeros(feat_of(nets)))) for k in HEADS}
    assert kinds == {k: SymlogTwoHot if k == name else TwoHot for k in HEADS}


def test_policy_and_value_have_the_rates_of_the_behavior():
    flags = ('--agent.opt.behavior_lr=0.5', '--agent.opt.behavior_eps=0.25')
    model, _ = model_of(('force',), *flags)
    opt, names = model.config.opt, Tree(model.example).names
    own = {name.split('.')[0]: model.rates(name) for name in names}
    rates = {name: model.rates(name) for name in names}
    assert all(rates[name] == own[name.split('.')[0]] for name in names)
    assert own.keys() == {'enc', 'dyn', 'dec', 'reward', 'cont', 'policy', 'value'}
    for name, rate in own.items():
        behavior = name in ('policy', 'value')
        expected = (0.5, 0.25) if behavior else (opt.lr, opt.eps)
        assert rate == Rates(*expected, opt.agc), name


def feat_of(nets):
    return nets.reward.mlp.layers[0].linear.kernel.shape[0]


def model_of(actions, *flags):
    obs_space, act_space = agents.spaces(('vector',), actions)
    model = Dreamer(obs_space, act_space, agents.make_config(*flags))
    return model, agents.make_batch(model, obs_space, act_space)


@pytest.mark.parametrize(
    'actions',
    [
        pytest.param(('force',), marks=pytest.mark.long),
        ('force', 'grip', 'discrete'),
    ],
)
def test_the_size_of_the_policy_gradient_is_logged(actions):
    model, batch = model_of(actions, '--agent.policy_grad=backprop')
    state = model.pack(model.init(jax.random.key(0)))
    batch = {k: batch[k] for k in model.batch_keys}
    train = jax.jit(model.train)
    norms = []
    for key in jax.random.split(jax.random.key(0), 20):
        result = train(state, model.weights(state), model.init_train(2), batch, key)
        state = result.state
        norms.append(float(result.metrics['opt/policy_grad_norm']))
    # At first reward and value are zero everywhere, and there is only entropy.
    assert 0 < norms[0] < 1e-4
    assert max(norms) > 10 * norms[0]
    assert norms[-1] < float(result.metrics['opt/grad_norm'])


def test_discrete_actions_alone_have_no_gradient_through_the_model():
    with pytest.raises(ConfigError, match='discrete ones only: discrete, multi'):
        model_of(('discrete', 'multi'), '--agent.policy_grad=backprop')


def test_another_kind_of_policy_gradient_is_refused():
    with pytest.raises(ConfigError, match="'backward'.*reinforce, backprop"):
        config.resolve(['--agent.policy_grad=backward'])
