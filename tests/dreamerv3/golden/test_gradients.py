"""Each loss trains what it is meant to train, and nothing else."""

import agent_outputs
import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest

from dreamerv3.agent.networks.rssm import State
from dreamerv3.agent.replay_context import Sequence
from dreamerv3.agent.returns import Range

PROBLEM = oracle.Problem(
    image=None,
    vectors={'position': 3},
    discrete={'jump': 2},
    continuous={'move': 3},
)
MODEL = {'enc', 'dyn'}  # what shapes the posterior states
TRAINED = {
    'dyn': MODEL,
    'rep': MODEL,
    'rew': MODEL | {'reward'},
    'con': MODEL | {'cont'},
    'rec/position': MODEL | {'dec'},
    'policy': {'policy'},
    'value': {'value'},
    'repval': MODEL | {'value'},
}


@pytest.fixture(scope='module')
def gradients():
    """By loss, the gradient of its mean for every network."""
    data = oracle.fresh(np.random.default_rng(0), PROBLEM, batch=2, length=3)
    # Sharp posteriors, so that all divergences are above the free nats.
    data['params.dyn.obslogit.kernel'] *= 10
    setup = agent_outputs.setup(PROBLEM, data, '--agent.imag_length=1')
    model, inputs = setup.model, setup.inputs
    zero = jnp.zeros(())
    state = {'slow': setup.slow, 'ranges': Range(zero, zero)}
    start = State(*(x[:, 0] for x in setup.feat))
    sequence = Sequence(inputs['obs'], inputs['act'], start)

    @jax.jit
    @jax.grad
    def gradient(nets, weights):
        keys = jax.random.split(jax.random.key(0))
        seen, obs = model.observe(nets, sequence, keys[0]), inputs['obs']
        losses, _ = model.world_losses(nets, obs, seen, keys[0])
        more, *_ = model.behavior_losses(nets, state, seen.states, obs, keys[1])
        losses |= more
        assert losses.keys() == TRAINED.keys()
        return sum(weights[k] * x.mean() for k, x in losses.items())

    alone = lambda name: {k: jnp.float32(k == name) for k in TRAINED}
    return {name: gradient(setup.nets, alone(name)) for name in TRAINED}


@pytest.mark.parametrize('loss', TRAINED)
def test_a_loss_trains_only_its_networks(gradients, loss):
    grads = vars(gradients[loss])
    reached = {
        name for name, grad in grads.items() if any(map(np.any, jax.tree.leaves(grad)))
    }
    assert reached == TRAINED[loss]


@pytest.mark.parametrize(
    ('loss', 'layers', 'reached'),
    [
        ('dyn', ('prior', 'prior_logit'), True),  # the prior moves to the posterior
        ('dyn', ('gru', 'hidden'), True),
        ('rep', ('prior', 'prior_logit'), False),  # the posterior moves to the prior
        ('rep', ('post', 'post_logit'), True),
        ('repval', ('post', 'post_logit', 'gru'), True),
        ('repval', ('prior', 'prior_logit'), False),
    ],
)
def test_divergences_train_one_side_each(gradients, loss, layers, reached):
    for layer in layers:
        leaves = jax.tree.leaves(getattr(gradients[loss].dyn, layer))
        assert all(np.any(x) for x in leaves) == reached, layer
        assert any(np.any(x) for x in leaves) == reached, layer
