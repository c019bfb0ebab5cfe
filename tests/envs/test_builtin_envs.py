"""The built-in environments: their rules, their scores and their exact resume."""

import copy

import numpy as np
import pytest

from embodied.core.errors import ConfigError
from embodied.core.random_agent import RandomAgent
from embodied.envs.builtin.catch import Catch
from embodied.envs.builtin.dummy import Dummy
from embodied.envs.builtin.reach import Reach
from embodied.envs.wrappers import CheckSpaces

LEFT, STAY, RIGHT = 0, 1, 2
BUILTIN = {
    'dummy_disc': lambda seed: Dummy('disc', 8, 5),
    'dummy_cont': lambda seed: Dummy('cont', (8, 12), 5),
    'dummy_mixed': lambda seed: Dummy('mixed', 8, 5),
    'catch': lambda seed: Catch(16, 8, seed),
    'reach': lambda seed: Reach(seed),
}


def rollout(env, steps, seed=0):
    """Observations under random actions."""
    agent = RandomAgent(env.obs_space, env.act_space, seed)
    observations = []
    for _ in range(steps):
        _, acts, _ = agent.policy((), {'is_first': np.zeros(1)})
        action = {k: v[0] for k, v in acts.items()}
        observations.append(env.step({**action, 'reset': False}))
    return observations


def assert_same(first, second):
    assert len(first) == len(second)
    for a, b in zip(first, second, strict=True):
        assert a.keys() == b.keys()
        for key in a:
            assert np.array_equal(a[key], b[key]), key


# All of them


@pytest.mark.parametrize('name', BUILTIN)
def test_observations_lie_in_their_spaces(name):
    observations = rollout(CheckSpaces(BUILTIN[name](0)), 120)
    assert observations[0]['is_first']
    assert any(obs['is_last'] for obs in observations)


@pytest.mark.parametrize('name', BUILTIN)
def test_episodes_begin_after_they_end_and_on_request(name):
    env = BUILTIN[name](0)
    observations = rollout(env, 120)
    for before, after in zip(observations, observations[1:], strict=False):
        assert after['is_first'] == before['is_last']
        assert not (after['is_first'] and after['reward'])
    env.step({'reset': True})
    assert not env.step({'reset': False, **_zeros(env)})['is_first']
    assert env.step({'reset': True})['is_first']


@pytest.mark.parametrize('name', BUILTIN)
@pytest.mark.parametrize('taken', [0, 1, 4, 7, 30])
def test_saved_environments_continue_exactly(name, taken):
    ours, theirs = BUILTIN[name](1), BUILTIN[name](2)
    rollout(ours, taken)
    state = ours.save()
    kept = copy.deepcopy(state)
    expected = rollout(ours, 70, seed=5)
    theirs.load(state)
    assert_same(rollout(theirs, 70, seed=5), expected)
    again = BUILTIN[name](3)
    again.load(kept)
    assert_same(rollout(again, 70, seed=5), expected)


@pytest.mark.parametrize('name', ['catch', 'reach'])
def test_the_seed_decides_everything(name):
    ours, same, other = (rollout(BUILTIN[name](seed), 40) for seed in (0, 0, 1))
    assert_same(ours, same)
    with pytest.raises(AssertionError):
        assert_same(ours, other)


def _zeros(env):
    return {
        k: np.zeros(v.shape, v.dtype) for k, v in env.act_space.items() if k != 'reset'
    }


# Dummy


@pytest.mark.parametrize(
    'task, keys',
    [
        ('disc', {'act_disc'}),
        ('cont', {'act_cont'}),
        ('mixed', {'act_disc', 'act_cont', 'act_multi'}),
    ],
)
def test_dummy_has_every_kind_of_key(task, keys):
    env = Dummy(task, size=(8, 12), length=3)
    assert env.act_space.keys() == keys | {'reset'}
    shapes = {k: (v.dtype.name, v.shape) for k, v in env.obs_space.items()}
    assert shapes == {
        'image': ('uint8', (8, 12, 3)),
        'vector': ('float32', (7,)),
        'token': ('int32', ()),
        'count': ('float32', ()),
        'float2d': ('float32', (4, 5)),
        'int2d': ('int32', (2, 3)),
        'reward': ('float32', ()),
        'is_first': ('bool', ()),
        'is_last': ('bool', ()),
        'is_terminal': ('bool', ()),
    }
    assert env.obs_space['token'].classes == 256
    assert env.obs_space['int2d'].classes.tolist() == [[4] * 3] * 2


def test_dummy_counts_the_steps_of_an_episode():
    observations = rollout(Dummy('disc', 4, length=3), 6)
    counts = [float(obs['count']) for obs in observations]
    assert counts == [0, 1, 2, 3, 0, 1]
    assert [bool(obs['is_terminal']) for obs in observations] == [0, 0, 0, 1, 0, 0]
    assert sum(float(obs['reward']) for obs in observations[:4]) == 3


@pytest.mark.parametrize('settings', [{'task': 'fly'}, {'task': 'disc', 'length': 0}])
def test_dummy_refuses_what_it_does_not_have(settings):
    with pytest.raises(ConfigError):
        Dummy(**settings)


# Catch


def play_catch(env, board, policy):
    """Score of one episode; the policy sees the columns of ball and paddle."""
    obs = env.step({'reset': True})
    score = 0.0
    while not obs['is_last']:
        obs = env.step({'reset': False, 'action': policy(*find(obs['image'], board))})
        score += float(obs['reward'])
    return score


def find(image, board):
    """Columns of ball and paddle, read from the pixels."""
    cells = image[:: len(image) // board, :: len(image) // board].astype(int)
    ball = np.argwhere(cells[..., 0] > cells[..., 2])
    paddle = np.argwhere(cells[..., 2] > cells[..., 0])
    return ball[0][1], (paddle[0] if len(paddle) else ball[0])[1]


def follow(ball, paddle):
    return STAY + np.sign(ball - paddle)


@pytest.mark.parametrize('size, board', [(16, 8), (64, 8), (9, 9), (60, 12)])
def test_the_optimum_of_catch_is_reached_from_every_column(size, board):
    env = Catch(size, board, seed=0)
    columns = set()
    for _ in range(20 * board):
        image = env.step({'reset': True})['image']
        columns.add(find(image, board)[0])
        assert play_catch(env, board, follow) == env.optimum == 1.0
    assert columns == set(range(board))


@pytest.mark.parametrize('board', [8, 9, 13])
def test_the_score_of_random_play_is_exact(board):
    # Distribution of the paddle over the columns, step by step.
    paddle = np.zeros(board)
    paddle[board // 2] = 1
    for _ in range(board - 1):
        left = np.append(paddle[1:], 0)
        left[0] += paddle[0]
        right = np.append(0, paddle[:-1])
        right[-1] += paddle[-1]
        paddle = (left + paddle + right) / 3
    caught = np.mean([paddle[column] for column in range(board)])
    exact = caught - (1 - caught)
    assert Catch(board, board).random_score == pytest.approx(exact, abs=1e-12)


def test_simulated_random_play_agrees_with_its_exact_score():
    env, random = Catch(8, 8, seed=0), np.random.default_rng(0)
    scores = [play_catch(env, 8, lambda *_: random.integers(3)) for _ in range(2000)]
    # Standard error: sqrt(1 - 0.75 ** 2) / sqrt(2000) = 0.015
    assert np.mean(scores) == pytest.approx(env.random_score, abs=0.06)
    assert env.random_score == -0.75


def test_catch_lasts_until_the_ball_is_down_and_pays_then():
    env = Catch(16, 8, seed=0)
    env.step({'reset': True})
    observations = [env.step({'reset': False, 'action': LEFT}) for _ in range(7)]
    assert [bool(obs['is_last']) for obs in observations] == [False] * 6 + [True]
    assert observations[-1]['is_terminal']
    assert [float(obs['reward']) for obs in observations[:-1]] == [0] * 6
    assert abs(observations[-1]['reward']) == 1


def test_the_paddle_stops_at_the_walls():
    env = Catch(8, 8, seed=0)
    for action, wall in [(LEFT, 0), (RIGHT, 7)]:
        env.step({'reset': True})
        for _ in range(6):
            obs = env.step({'reset': False, 'action': action})
        assert find(obs['image'], 8)[1] == wall


@pytest.mark.parametrize(
    'settings, words',
    [
        ({'size': 20}, ['20', 'multiple of 8', 'nearest one is 16']),
        ({'size': 3}, ['3', 'multiple of 8', 'nearest one is 8']),
        ({'board': 7}, ['board >= 8', '7']),
    ],
)
def test_catch_refuses_boards_it_cannot_draw(settings, words):
    with pytest.raises(ConfigError) as error:
        Catch(**settings)
    assert all(word in str(error.value) for word in words)


# Reach


def mean_score(env, policy, episodes=30):
    total = 0.0
    for _ in range(episodes):
        obs = env.step({'reset': True})
        while not obs['is_last']:
            obs = env.step({'reset': False, 'action': policy(obs)})
            total += float(obs['reward'])
    return total / episodes


def test_reach_rewards_moving_to_the_target():
    random = np.random.default_rng(0)
    blind = mean_score(Reach(0), lambda obs: random.uniform(-1, 1, 2))
    steered = mean_score(
        Reach(0),
        lambda obs: 10 * (obs['target'] - obs['position']) - 20 * obs['velocity'],
    )
    # At most 50; on the way to the target a part of it is lost.
    assert 40 < steered < 50
    assert blind < 15


def test_reach_ends_by_time_and_never_terminally():
    observations = rollout(Reach(0), 102)
    ends = [i for i, obs in enumerate(observations) if obs['is_last']]
    assert ends == [50, 101]
    assert not any(obs['is_terminal'] for obs in observations)


def test_the_mass_of_reach_obeys_the_force():
    env = Reach(0)
    before = env.step({'reset': True})
    after = env.step({'reset': False, 'action': np.float32([1, -0.5])})
    assert after['velocity'] == pytest.approx([0.05, -0.025])
    assert after['position'] == pytest.approx(before['position'] + [0.05, -0.025])
    assert after['reward'] == pytest.approx(
        1 - np.linalg.norm(after['position'] - after['target'])
    )
    for _ in range(40):
        obs = env.step({'reset': False, 'action': np.float32([1, -1])})
    assert obs['position'].tolist() == [1, -1]
    assert obs['velocity'].tolist() == [0, 0]
