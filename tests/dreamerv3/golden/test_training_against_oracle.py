"""The training loss and its gradient agree with the oracle, in one piece.

All that separates the parts of the loss from each other is in it: resets within the
sequence, samples with straight-through gradients, stopped gradients, free nats.
"""

import agent_outputs
import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest
import training_oracle
from golden_names import by_golden_name

from dreamerv3.agent import behavior
from dreamerv3.agent.networks.rssm import State
from dreamerv3.agent.returns import Range

TOLERANCE = 1e-5
GRADIENT_TOLERANCE = 1e-4  # backward through time in float32
BATCH, LENGTH, CONTEXT = 3, 4, 1
SHARPNESS = 1.5  # of the posterior's logits, for divergences around the free nats
PROBLEM = oracle.Problem(
    image=(16, 16, 3),
    mults=(2, 2),
    depth=4,
    vectors={'position': 3},
    tokens={'symbol': 5},
    discrete={'jump': 2},
    continuous={'move': 3},
)


class Training:
    """One call of the agent's loss, and all that the oracle needs to repeat it."""

    def __init__(self, problem, seed, policy_grad):
        rng = np.random.default_rng(seed)
        data = oracle.fresh(rng, problem, BATCH, CONTEXT + LENGTH)
        data['params.dyn.obslogit.kernel'] *= SHARPNESS
        data['in.obs.is_first'][0, CONTEXT + LENGTH // 2] = True
        self.params = oracle.nest(data)['params']
        self.setup = agent_outputs.setup(
            problem,
            data,
            f'--replay_context={CONTEXT}',
            '--agent.imag_length=3',
            f'--agent.policy_grad={policy_grad}',
        )
        self.backprop = policy_grad == 'backprop'
        obs, act = self.setup.inputs['obs'], self.setup.inputs['act']
        self.obs = {k: v[:, CONTEXT:] for k, v in obs.items()}
        self.previous = {k: v[:, CONTEXT - 1 : -1] for k, v in act.items()}
        stored = _random_latents(rng, problem, (BATCH, CONTEXT + LENGTH))
        consec = np.zeros((BATCH, CONTEXT + LENGTH), np.int32)
        self.batch = {**obs, **act, **stored, 'consec': consec}
        one_hot = lambda x: np.eye(problem.classes, dtype=np.float32)[x]
        before = {k: v[:, CONTEXT - 1] for k, v in stored.items()}
        self.start = (before['dyn/deter'], one_hot(before['dyn/stoch']))
        self.key = jax.random.key(seed)
        self.grad, self.total, self.aux = jax.jit(self._run)(self.setup.nets)
        self.deter = np.asarray(self.aux['replay']['dyn/deter'])
        self.stoch = one_hot(self.aux['replay']['dyn/stoch'])
        self.rollout = self._rollout()

    def _run(self, nets):
        model, zero = self.setup.model, jnp.zeros(())
        state = {'params': nets, 'slow': self.setup.slow, 'ranges': Range(zero, zero)}
        loss = jax.value_and_grad(model.loss, has_aux=True)
        carry = model.init_train(BATCH)
        (total, aux), grad = loss(nets, state, carry, self.batch, self.key)
        return grad, total, aux

    def _rollout(self):
        """The imagined states and actions, from the random numbers of the loss."""
        model, nets = self.setup.model, self.setup.nets
        noise = model._imag_noise(jax.random.split(self.key)[1], (BATCH, LENGTH))
        flat = lambda x: x.reshape(-1, *x.shape[2:])
        start = State(flat(self.deter), flat(self.stoch))
        rollout = jax.jit(behavior.imagine)(nets.dyn, nets.policy, start, noise)
        states, acts = jax.tree.map(lambda x: x.swapaxes(0, 1), rollout)
        # The oracle wants an action for the last state too, which counts nowhere.
        repeat_last = lambda x: np.concatenate([x, x[:, -1:]], 1)
        return {
            'deter': np.float64(states.deter),
            'stoch': np.float64(states.stoch),
            'act': {k: repeat_last(np.asarray(v)) for k, v in acts.items()},
        }

    def expected(self, params):
        return training_oracle.training_losses(
            params,
            self.obs,
            self.previous,
            self.start,
            self.stoch,
            self.rollout,
            self.backprop,
        )


def _random_latents(rng, problem, lead):
    stoch = rng.integers(0, problem.classes, (*lead, problem.stoch), np.uint8)
    deter = rng.standard_normal((*lead, problem.deter), np.float32)
    return {'dyn/deter': deter, 'dyn/stoch': stoch}


@pytest.fixture(scope='module', params=['reinforce', 'backprop'])
def training(request):
    return Training(PROBLEM, seed=3, policy_grad=request.param)


def test_inputs_cover_both_sides_of_free_nats_and_resets_in_the_middle(training):
    divergence = training.expected(training.params)['dyn']
    assert (divergence == 1).any()
    assert (divergence > 1).any()
    resets = training.obs['is_first'][:, 1:]
    assert resets.any()
    assert not resets.all()


def test_every_loss_agrees(training):
    expected = training.expected(training.params)
    losses = training.aux['losses']
    assert losses.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(losses[name], value.mean(), rtol=TOLERANCE)


def test_the_total_is_the_weighted_sum(training):
    expected = training_oracle.weighted_sum(training.expected(training.params))
    np.testing.assert_allclose(training.total, expected, rtol=TOLERANCE)


def test_the_gradient_of_the_total_agrees_for_every_tensor(training):
    rng = np.random.default_rng(0)
    function = lambda params: training_oracle.weighted_sum(training.expected(params))
    unit = lambda x: x / np.linalg.norm(x)
    for name, grad in by_golden_name(training.grad, training.setup.nets).items():
        assert grad.any(), name
        direction = unit(rng.standard_normal(grad.shape)) + unit(grad)
        derived = oracle.directional(function, training.params, name, direction)
        error = abs(derived - (np.float64(grad) * direction).sum())
        assert error < GRADIENT_TOLERANCE * np.linalg.norm(grad), name


def test_states_follow_the_recorded_steps(training):
    deter, _, _ = training_oracle.observe(
        training.params, training.obs, training.previous, training.start, training.stoch
    )
    assert oracle.relative_error(training.deter, deter) < TOLERANCE


def test_imagination_starts_from_every_state_and_follows_the_core(training):
    starts = training.rollout['deter'][:, 0]
    size = training.deter.shape[-1]
    np.testing.assert_array_equal(starts, training.deter.reshape(-1, size))
    error = training_oracle.rollout_error(training.params, training.rollout)
    assert error < TOLERANCE
