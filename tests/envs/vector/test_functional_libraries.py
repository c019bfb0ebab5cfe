"""Libraries of functional environments, those that are installed, become members."""

import importlib.util

import gymnasium
import numpy as np
import pytest
from members import play

from embodied import envs
from embodied.core.errors import ConfigError

# The libraries use what JAX, NumPy and others have deprecated.
pytestmark = pytest.mark.filterwarnings('ignore')

MODULES = {'playground': 'mujoco_playground'}
TASKS = [
    'gymnax:CartPole-v1',
    'gymnax:Pendulum-v1',
    'gymnax:Breakout-MinAtar',
    'gymnax:FrozenLake-misc',
    'navix:Empty-5x5-v0',
    'craftax:classic-symbolic',
    'brax:inverted_pendulum',
    'playground:CartpoleBalance',
]
LENGTH = 12  # time limit, where an option sets it


def make(task, num=3, **settings):
    suite = task.partition(':')[0]
    if importlib.util.find_spec(MODULES.get(suite, suite)) is None:
        pytest.skip(f"{suite} is missing: pip install 'dreamer-parallel[{suite}]'")
    return envs.make(task, list(range(num)), num=num, **settings)


@pytest.mark.parametrize('task', TASKS)
def test_episodes_begin_and_end_by_the_contract(task):
    env = make(task, length=LENGTH)
    streams = play(env, 30)
    for stream in streams:
        rows = [row for _, row in stream]
        assert rows[0]['is_first'] and sum(row['is_last'] for row in rows) >= 2
        for row, after in zip(rows[:-1], rows[1:], strict=True):
            assert row['is_last'] == after['is_first']
        assert all(row['reward'] == 0 for row in rows if row['is_first'])
    rewards = [row['reward'] for stream in streams for _, row in stream]
    assert np.isfinite(rewards).all()


@pytest.mark.parametrize('task', TASKS)
def test_saved_members_go_on_exactly(task):
    env, other = make(task), make(task)
    play(env, 3)
    data = env.save()
    rest = play_on(env)
    other.load(data)
    again = play_on(other)
    for key in rest:
        np.testing.assert_array_equal(rest[key], again[key])


def play_on(env):
    acts = {k: np.zeros((env.num, *v.shape), v.dtype) for k, v in env.act_space.items()}
    rows = [env.step(acts) for _ in range(4)]
    return {key: np.stack([row[key] for row in rows]) for key in rows[0]}


def test_cartpole_of_gymnax_follows_gymnasium_until_the_last_observation():
    env = make('gymnax:CartPole-v1')
    gym_env = gymnasium.make('CartPole-v1').unwrapped
    for stream in play(env, 100):
        for action, row in stream:
            if row['is_first']:
                gym_env.reset()
                gym_env.state = row['vector'].astype(np.float64)
                continue
            obs, reward, terminated, _, _ = gym_env.step(int(action['action']))
            np.testing.assert_allclose(row['vector'], obs, rtol=1e-4, atol=1e-5)
            assert (row['reward'], row['is_terminal']) == (reward, terminated)
            assert row['is_last'] == terminated


def test_a_time_limit_is_no_terminal_end():
    for task in ('gymnax:Pendulum-v1', 'craftax:classic-symbolic'):
        for stream in play(make(task, length=5), 20):
            last = [row for _, row in stream if row['is_last']]
            assert last and not any(row['is_terminal'] for row in last)


def test_the_game_time_of_craftax_is_no_terminal_end():
    make('craftax:classic-symbolic')  # or the test is skipped
    from craftax.craftax_env import make_craftax_env_from_name

    from embodied.envs import FunctionalVectorEnv
    from embodied.envs.vector.functional.craftax_env import FromCraftax

    world = make_craftax_env_from_name('Craftax-Classic-Symbolic-v1', auto_reset=False)
    params = world.default_params.replace(max_timesteps=4)
    env = FunctionalVectorEnv(FromCraftax(world, params), 2, seed=1)
    for stream in play(env, 12):
        last = [row for _, row in stream if row['is_last']]
        assert len(last) == 2 and not any(row['is_terminal'] for row in last)


def test_views_of_navix():
    symbols = make('navix:Empty-5x5-v0')
    assert symbols.obs_space['symbols'].shape == (147,)
    image = make('navix:Empty-5x5-v0', image=True)
    assert image.obs_space['image'].shape == (64, 64, 3)
    (_, row), *_ = play(image, 1)[0]
    assert row['image'].std() > 0


@pytest.mark.parametrize(
    ('task', 'words'),
    [
        ('gymnax:CartPle-v1', 'CartPole-v1'),
        ('navix:Empty-5x5', 'Empty-5x5-v0'),
        ('brax:aunt', 'ant, '),
        ('playground:WalkrWalk', 'WalkerWalk'),
    ],
)
def test_unknown_names_are_refused(task, words):
    with pytest.raises(ConfigError, match=words):
        make(task)
