"""The whole agent: any mix of keys, replay context, checkpoints, bad losses."""

import functools
import threading
from concurrent.futures import ThreadPoolExecutor

import agents
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from comparing import assert_same

import dreamerv3
from dreamerv3.agent.model import Dreamer
from dreamerv3.agent.replay_context import Sequence
from embodied.core.errors import CheckpointError, NonFiniteError
from embodied.jax.tree import Tree

ROWS = 2
KINDS = {
    'image, discrete': (['image'], ['discrete']),
    'two images, multi-discrete': (['image', 'depth'], ['multi']),
    'vector, continuous': (['vector'], ['force']),
    'scalars': (['scalar'], ['grip']),
    'token, bool action': (['token'], ['button']),
    'flag, all actions': (['flag'], list(agents.ACTIONS)),
    '2-d float': (['table'], ['discrete', 'force']),
    '2-d int': (['tiles'], ['discrete', 'multi']),
    'bytes': (['bytes'], ['discrete']),
    'everything': (list(agents.OBSERVATIONS), list(agents.ACTIONS)),
}
# Of the agent that is compiled; all that is optional is on.
FLAGS = (
    '--jax.compute_dtype=bfloat16',
    '--replay.fracs.priority=0.5',
    '--replay.fracs.uniform=0.5',
    '--agent.eval_greedy=True',
)


# Shapes, for every mix of keys: traced but not compiled


@pytest.mark.parametrize(
    ('kinds', 'flag'),
    [
        *((kinds, '--seed=0') for kinds in KINDS),
        ('everything', '--jax.compute_dtype=bfloat16'),
        ('vector, continuous', '--replay_context=0'),
        ('vector, continuous', '--replay_context=3'),
    ],
)
def test_every_mix_of_keys_trains_acts_and_reports(kinds, flag):
    spaces = agents.spaces(*KINDS[kinds])
    model = Dreamer(*spaces, agents.make_config(flag))
    batch = _select(agents.make_batch(model, *spaces, ROWS), model.batch_keys)
    key = jax.random.key(0)
    shapes = lambda fn, *args: jax.eval_shape(fn, *args)
    tree = shapes(model.init, key)
    state = shapes(model.pack, tree)
    assert _signature(shapes(model.unpack, state)) == _signature(tree)
    weights = shapes(model.weights, state)
    carry = shapes(lambda: model.init_train(ROWS))
    result = shapes(model.train, state, weights, carry, batch, key)
    assert _signature(result.state) == _signature(state)
    assert _signature(result.carry) == _signature(carry)
    assert all(x.shape == () for x in jax.tree.leaves((result.losses, result.metrics)))
    params = model.policy_params(weights)
    obs = _select(agents.make_obs(spaces[0], (ROWS,)), model.policy_keys)
    for greedy in (False, True):
        act = functools.partial(model.policy, greedy=greedy)
        after, acts, outs = shapes(act, params, carry, obs, key)
        assert _signature(after) == _signature(carry)
        expected = {k: ((ROWS, *x.shape), x.dtype) for k, x in spaces[1].items()}
        assert _signature(acts) == _signature_of(expected)
        latents = {
            k: ((ROWS, *x.shape), x.dtype) for k, x in model.latent_spaces.items()
        }
        assert _signature(outs) == _signature_of(latents)
    carry, metrics = shapes(model.report, state, weights, carry, batch, key)
    videos = {k for k, x in metrics.items() if x.shape}
    assert videos == {f'open_loop/{k}' for k in model.inputs.images}


def _select(data, keys):
    return {k: data[k] for k in keys}


def _signature(tree):
    paths, structure = jax.tree.flatten(tree)
    return structure, [(x.shape, x.dtype) for x in paths]


def _signature_of(table):
    return _signature({k: jax.ShapeDtypeStruct(*x) for k, x in table.items()})


# One agent with images, vectors and both kinds of actions, compiled once


@pytest.fixture(scope='module')
def shared():
    """One agent for all tests, its data at the beginning, and its spaces."""
    spaces = agents.spaces(['image', 'vector', 'tiles'], ['discrete', 'force'])
    agent = dreamerv3.Agent(*spaces, agents.make_config(*FLAGS))
    return agent, agent.save(), spaces


@pytest.fixture
def agent(shared):
    agent, start, _ = shared
    agent.load(start)
    return agent


@pytest.fixture
def batches(shared):
    agent, _, spaces = shared
    return lambda seed=0: agents.make_batch(agent.model, *spaces, ROWS, seed=seed)


def train(agent, *batches, carry=None):
    carry = agent.init_train(ROWS) if carry is None else carry
    for batch in batches:
        carry, outs, metrics = agent.train(carry, batch)
    return carry, outs, metrics


def values(agent):
    return agent.state


def test_training_changes_every_parameter(agent, batches):
    before = values(agent)
    _, _, metrics = train(agent, *(batches(i) for i in range(4)))
    assert all(np.isfinite(x) for x in metrics.values())
    after = values(agent)
    names = [k for k in after if k.startswith(('params.', 'slow.'))]
    assert [k for k in names if np.array_equal(after[k], before[k])] == []


def test_the_slow_value_follows_by_two_percent(agent, batches):
    train(agent, *(batches(i) for i in range(3)))
    slow = {k: v for k, v in values(agent).items() if k.startswith('slow.')}
    train(agent, batches(3))
    after = values(agent)
    for name, old in slow.items():
        fast = after[name.replace('slow.', 'params.value.')]
        expected = 0.98 * old + 0.02 * fast
        np.testing.assert_allclose(after[name], expected, rtol=1e-5, atol=1e-9)


def test_latents_of_all_trained_steps_are_written_back(agent, batches):
    first = batches(0)
    carry, *_ = train(agent, first)
    _, outs, _ = train(agent, batches(1))
    replay, context = outs['replay'], agent.model.context
    np.testing.assert_array_equal(replay['stepid'], first['stepid'][:, context:])
    for name, space in agent.model.latent_spaces.items():
        assert replay[name].shape == (*replay['stepid'].shape[:2], *space.shape)
        assert replay[name].dtype == space.dtype
    # The next of consecutive batches starts where the latents end.
    bits = np.asarray(carry.state.deter).view(np.uint16)
    np.testing.assert_array_equal(replay['dyn/deter'][:, -1], bits)
    stoch = np.asarray(carry.state.stoch).argmax(-1)
    np.testing.assert_array_equal(replay['dyn/stoch'][:, -1], stoch)


@pytest.mark.parametrize(
    ('consec', 'step', 'matters'),
    [(0, 0, True), (0, 1, False), (0, -1, False), (1, 0, False)],
)
def test_only_the_latent_before_a_first_batch_is_read(
    agent, batches, shared, consec, step, matters
):
    assert agent.model.context == 1
    results = []
    for change in (0, 1):
        agent.load(shared[1])
        batch = batches(0)
        batch['consec'][:] = consec
        batch['dyn/deter'][:, step] += np.uint16(0x3F80 * change)  # the bits of 1.0
        carry, *_ = train(agent, batch)
        results.append(np.asarray(carry.state.deter, np.float32))
    assert np.array_equal(*results) == (not matters)


def test_a_policy_step_is_a_training_step(agent, batches, shared):
    """Latents from acting are those that training computes at the same step."""
    train(agent, batches(5), batches(6))  # at first biases and so deter are zero
    batch = batches(0)
    batch['is_first'][:, 1] = True
    obs = {k: v[:, 1] for k, v in batch.items()}
    _, _, outs = agent.policy(agent.init_policy(ROWS), obs)
    train(agent, batch)
    _, trained, _ = train(agent, batches(1))
    # Both start from zeros at the first step of an episode; samples may differ.
    one, two = (
        np.float32(x.view(jnp.bfloat16))
        for x in (outs['dyn/deter'], trained['replay']['dyn/deter'][:, 0].copy())
    )
    np.testing.assert_allclose(one, two, rtol=0.02, atol=1e-3)
    assert np.abs(one).max() > 0.01


def test_reports_hold_losses_and_videos_and_change_nothing(agent, batches):
    before = values(agent)
    _, metrics = agent.report(agent.init_report(ROWS), batches(0))
    assert_same(values(agent), before)
    side, border = 16, 2
    video = metrics.pop('open_loop/image')
    assert video.shape == (3, 3 * (side + border), ROWS * (side + border), 3)
    assert video.dtype == np.uint8
    assert {'loss/dyn', 'loss/rec/image', 'loss/policy'} <= set(metrics)
    assert all(np.isfinite(x) for x in metrics.values())


def test_loading_continues_exactly(agent, batches):
    carry, *_ = train(agent, batches(0), batches(1))
    saved = agent.save()
    results = []
    for _ in range(2):
        agent.load(saved)
        _, outs, metrics = train(agent, batches(2), carry=carry)
        train(agent, batches(3), batches(4))
        results.append((outs['replay'], metrics, values(agent)))
    for one, two in zip(*results, strict=True):
        assert_same(one, two)
    expected = batches(1)['stepid'][:, agent.model.context :]
    np.testing.assert_array_equal(results[1][0]['stepid'], expected)


def test_another_agent_of_the_same_seed_is_the_same_agent(agent, batches, shared):
    _, start, spaces = shared
    twin = dreamerv3.Agent(*spaces, agents.make_config(*FLAGS))
    assert_same(values(twin), start['state'])
    other = dreamerv3.Agent(*spaces, agents.make_config(*FLAGS, '--seed=1'))
    name = 'params.dyn.gru.kernel'
    assert not np.array_equal(values(other)[name], values(twin)[name])


def test_part_of_a_checkpoint_can_be_loaded(agent, batches, shared):
    train(agent, *(batches(i) for i in range(3)))
    trained = agent.save()
    agent.load(shared[1])
    agent.load(trained, regex=r'^params\.(enc|dyn)\.')
    after = values(agent)
    for name, value in after.items():
        loaded = name.startswith(('params.enc.', 'params.dyn.'))
        source = trained if loaded else shared[1]
        np.testing.assert_array_equal(value, source['state'][name], err_msg=name)


def test_a_checkpoint_of_another_size_is_refused(agent, shared):
    config = agents.make_config('--.*\\.units', '9')
    tree = Tree(jax.eval_shape(Dreamer(*shared[2], config).init, jax.random.key(0)))
    shapes = zip(tree.names, tree.shapes, strict=True)
    state = {k: np.zeros(x.shape, x.dtype) for k, x in shapes}
    with pytest.raises(CheckpointError, match=r'in the checkpoint.*here.*and \d+ more'):
        agent.load({**agent.save(), 'state': state})


@pytest.mark.parametrize(
    ('key', 'loss'), [('reward', 'rew'), ('vector', 'dyn'), ('force', 'dyn')]
)
def test_bad_values_in_a_batch_are_reported_and_change_nothing(
    agent, batches, key, loss
):
    carry, *_ = train(agent, batches(0), batches(1))
    before = values(agent)
    bad = batches(2)
    bad[key][0, 2] = np.nan
    agent.train(carry, bad)
    assert_same(values(agent), before)
    with pytest.raises(NonFiniteError, match=f"'{loss}' became nan in update 3"):
        agent.train(carry, batches(3))


def test_acting_and_learning_run_in_two_threads(agent, batches, shared):
    obs = agents.make_obs(shared[2][0], (ROWS,))
    started, done = threading.Event(), threading.Event()

    def act():
        carry = agent.init_policy(ROWS)
        while not done.is_set():
            carry, acts, _ = agent.policy(carry, obs)
            assert np.all(np.isfinite(acts['force']))
            started.set()

    data = [batches(i) for i in range(5)]
    with ThreadPoolExecutor() as pool:
        acting = pool.submit(act)
        started.wait(60)
        train(agent, *data, *data)
        done.set()
        acting.result()
    together = values(agent)
    agent.load(shared[1])
    train(agent, *data, *data)
    assert_same(together, values(agent))


# Options


def test_bfloat16_keeps_parameters_and_moments_in_float32(agent, batches):
    carry, *_ = train(agent, batches(0))
    assert carry.state.deter.dtype == jnp.bfloat16
    kinds = {v.dtype for v in values(agent).values()}
    assert kinds == {np.dtype(np.float32), np.dtype(np.int32)}


def test_priorities_are_the_losses_of_each_step(agent, batches):
    _, outs, metrics = train(agent, batches(0), batches(1))
    priority = outs['replay']['priority']
    assert priority.shape == outs['replay']['stepid'].shape[:2]
    scales = agent.model.config.loss_scales
    names = ['dyn', 'rep', 'rew', 'con', *(f'rec/{k}' for k in agent.model.encoded)]
    expected = sum(scales[k.split('/')[0]] * metrics[f'loss/{k}'] for k in names)
    np.testing.assert_allclose(priority.mean(), expected, rtol=1e-5)


def test_greedy_evaluation_takes_the_most_likely_action(agent, shared):
    obs = agents.make_obs(shared[2][0], (ROWS,))
    act = lambda mode: agent.policy(agent.init_policy(ROWS), obs, mode)[1]['force']
    many = lambda mode: np.stack([act(mode) for _ in range(20)])
    # Means start near zero, with a deviation of about 0.9 around them.
    assert np.abs(many('eval')).max() < 0.2
    assert many('train').std() > 0.5


def test_bfloat16_stays_close_to_float32():
    rows, spaces = 16, agents.spaces(['vector'], ['force'])
    models = [
        Dreamer(*spaces, agents.make_config('--jax.compute_dtype', dtype))
        for dtype in ('bfloat16', 'float32')
    ]
    nets = jax.jit(models[0].init)(jax.random.key(0))['params']
    batch = agents.make_batch(models[1], *spaces, rows)

    def losses(model, nets):
        previous = {k: batch[k] for k in spaces[1]}
        sequence = Sequence(batch, previous, model.init_train(rows).state)
        key = jax.random.key(0)
        seen = model.observe(nets, sequence, key)
        return model.world_losses(nets, batch, seen, key)[0]

    rough, fine = (jax.jit(losses, static_argnums=0)(x, nets) for x in models)
    for name in fine:
        rough_mean, fine_mean = rough[name].mean(), fine[name].mean()
        np.testing.assert_allclose(rough_mean, fine_mean, rtol=0.02, err_msg=name)
