"""The Python interface: load, act, imagine."""

import numpy as np
import pytest

import dreamerv3
from dreamerv3 import factories
from embodied.core.errors import CheckpointError, ConfigError, SpaceError


@pytest.fixture(scope='module')
def agent(catch_run):
    return dreamerv3.load(catch_run)


@pytest.fixture
def episode(agent):
    """Observations [8, ...] and actions [8] of a whole episode."""
    env = factories.make_env(agent.config, 0)
    steps = [env.step({'action': np.int32(0), 'reset': True})]
    actions = np.array([0, 1, 2, 0, 1, 2, 0, 0], np.int32)
    for action in actions[:-1]:
        steps.append(env.step({'action': action, 'reset': False}))
    assert steps[-1]['is_last']
    obs = {k: np.stack([x[k] for x in steps]) for k in steps[0]}
    return obs, {'action': actions}


def at(obs, *index):
    return {k: v[index] for k, v in obs.items()}


def test_single_observations_give_single_actions(agent, episode):
    obs, _ = episode
    action, state = agent.act(at(obs, 0))
    assert list(action) == ['action']
    assert action['action'].shape == () and action['action'].dtype == np.int32
    assert isinstance(action['action'], np.generic | np.ndarray)
    assert 0 <= action['action'] < 3
    action, _ = agent.act(at(obs, 1), state)
    assert 0 <= action['action'] < 3


def test_batch_gives_one_action_per_row(agent, episode):
    obs, _ = episode
    actions, state = agent.act({'image': obs['image'][[0, 3, 5]]}, greedy=True)
    assert actions['action'].shape == (3,)
    actions, _ = agent.act({'image': obs['image'][[1, 4, 6]]}, state, greedy=True)
    assert actions['action'].shape == (3,)


def test_state_carries_the_past_and_is_first_forgets_it(agent, episode):
    obs, _ = episode
    deter = lambda state: np.asarray(state.state.deter)
    _, first = agent.act({'image': obs['image'][0]})
    _, later = agent.act({'image': obs['image'][1]}, first)
    _, again = agent.act({'image': obs['image'][1], 'is_first': True}, later)
    # Before anything was seen, the recurrent state is the same for all episodes.
    assert (deter(later) != deter(first)).any()
    np.testing.assert_array_equal(deter(again), deter(first))


def test_imagine_predicts_frames_and_rewards_of_the_steps_after(agent, episode):
    obs, actions = episode
    seen = at(obs, slice(3))
    result = agent.imagine(seen, actions)
    # 3 steps were seen, 2 of 8 actions lie between them, 6 are left to imagine.
    assert result.frames['image'].shape == (6, 16, 16, 3)
    assert result.frames['image'].dtype == np.uint8
    assert result.reward.shape == result.cont.shape == (6,)
    # A head that has learned nothing predicts exactly 0.
    np.testing.assert_array_equal(result.reward, 0)
    assert ((result.cont > 0) & (result.cont <= 1)).all()


def test_imagine_takes_batches_and_looks_at_actions_and_seed(agent, episode):
    obs, actions = episode
    seen, single = at(obs, slice(3)), agent.imagine(at(obs, slice(3)), actions)
    other = {'action': np.array([0, 1, 0, 1, 2, 0, 1, 2], np.int32)}
    stack = lambda a, b: {k: np.stack([a[k], b[k]]) for k in a}
    batch = agent.imagine(stack(seen, seen), stack(actions, actions))
    assert batch.frames['image'].shape == (2, 6, 16, 16, 3)
    changed = agent.imagine(seen, other)
    assert (changed.frames['image'] != single.frames['image']).any()
    again = agent.imagine(seen, actions)
    np.testing.assert_array_equal(again.frames['image'], single.frames['image'])
    reseeded = agent.imagine(seen, actions, seed=1)
    assert (reseeded.frames['image'] != single.frames['image']).any()


def test_the_model_sees_what_happened_before_the_last_step(agent, episode):
    obs, actions = episode
    seen = {'image': obs['image'][:3].copy()}
    before = agent.imagine(seen, actions)
    seen['image'][0] = 255 - seen['image'][0]
    after = agent.imagine(seen, actions)
    assert (before.frames['image'] != after.frames['image']).any()


def test_every_action_counts_from_its_own_step_on(agent, episode):
    obs, actions = episode
    seen = at(obs, slice(3))
    before = agent.imagine(seen, actions).frames['image']
    for changed, same in ((0, 0), (1, 0), (2, 0), (4, 2), (7, 5)):
        other = {'action': actions['action'].copy()}
        other['action'][changed] = (other['action'][changed] + 1) % 3
        after = agent.imagine(seen, other).frames['image']
        np.testing.assert_array_equal(after[:same], before[:same])
        assert (after[same:] != before[same:]).any(), changed


def test_greedy_actions_follow_from_the_state_and_sampled_ones_do_not(agent):
    image = {'image': np.zeros((512, 16, 16, 3), np.uint8)}
    numbers = {}
    for greedy in (True, False):
        actions, state = agent.act(image, greedy=greedy)
        pairs = zip(np.asarray(state.state.stoch), actions['action'], strict=True)
        numbers[greedy] = {(stoch.tobytes(), int(action)) for stoch, action in pairs}
    states = {greedy: {s for s, _ in pairs} for greedy, pairs in numbers.items()}
    # The first recurrent state is the same for all, so `stoch` is all of the state.
    assert len(numbers[True]) == len(states[True])
    assert len(numbers[False]) > len(states[False])


@pytest.mark.parametrize(
    ('obs', 'words'),
    [
        ({}, ['Missing: image', '(16, 16, 3)']),
        ({'image': np.zeros((8, 8, 3), np.uint8)}, ['(8, 8, 3)', '(16, 16, 3)']),
        ({'image': np.zeros((16, 16, 3))}, ['float64', 'uint8']),
        ({'image': np.zeros((1, 1, 16, 16, 3), np.uint8)}, ['1 for a batch']),
    ],
)
def test_wrong_observations_are_explained(agent, obs, words):
    with pytest.raises(SpaceError) as info:
        agent.act(obs)
    assert all(word in str(info.value) for word in words), info.value


def test_wrong_state_and_too_few_actions_are_explained(agent, episode):
    obs, actions = episode
    _, state = agent.act(at(obs, 0))
    with pytest.raises(SpaceError, match='of 1 environments, the observation of 8'):
        agent.act(obs, state)
    with pytest.raises(SpaceError, match=r'of 8 observed steps .* one to imagine'):
        agent.imagine(obs, {'action': actions['action'][:7]})


def test_loading_needs_no_environment_and_takes_flags(catch_run):
    agent = dreamerv3.load(catch_run / 'ckpt', ['--task', 'gym_Nowhere-v0'])
    assert agent.step == 1234
    assert agent.config.task == 'gym_Nowhere-v0'
    assert list(agent.obs_space) == ['image']
    assert agent.act_space['action'].high == 3


def test_what_cannot_be_loaded_is_explained(tmp_path, catch_run):
    with pytest.raises(CheckpointError, match='no checkpoint'):
        dreamerv3.load(tmp_path)
    with pytest.raises(ConfigError, match='Unknown flag'):
        dreamerv3.load(catch_run, ['--no.such', '1'])
