"""Functional environments of JAX: all members in one program, with resets of ours."""

import pickle
import subprocess
import sys

import elements
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from functional_cartpole import CartPole
from members import play

import embodied
from embodied import envs
from embodied.core.errors import ConfigError, SpaceError
from embodied.envs import FunctionalEnv, FunctionalVectorEnv
from embodied.envs.adapters import own
from embodied.envs.conversion import ConvertArrays
from embodied.envs.vector.functional.for_agents import for_agents
from embodied.envs.wrappers import CheckSpaces


def rows_of(stream):
    return [row for _, row in stream]


def assert_equal(first, second):
    for (_, a), (_, b) in zip(first, second, strict=True):
        assert a.keys() == b.keys()
        assert all(np.array_equal(a[key], b[key]) for key in a)


def test_cartpole_follows_gymnasium_step_by_step_until_the_last_observation():
    env = FunctionalVectorEnv(CartPole(), 3, seed=1)
    gym_env = gymnasium.make('CartPole-v1').unwrapped
    for stream in play(env, 100):
        ends = 0
        for action, row in stream:
            if row['is_first']:
                gym_env.reset()
                gym_env.state = row['vector'].astype(np.float64)
                assert row['reward'] == 0 and np.abs(row['vector']).max() <= 0.05
                continue
            obs, reward, terminated, _, _ = gym_env.step(int(action['action']))
            np.testing.assert_allclose(row['vector'], obs, rtol=1e-4, atol=1e-5)
            assert row['reward'] == reward
            assert row['is_last'] == row['is_terminal'] == terminated
            ends += terminated
        assert ends > 1


def test_episodes_begin_after_last_rows_and_where_they_are_asked_to():
    env = FunctionalVectorEnv(CartPole(), 4, seed=1)
    resets = {5: [0], 20: [1, 2]}
    for member, stream in enumerate(play(env, 60, resets)):
        rows = rows_of(stream)
        for step in range(1, 60):
            asked = member in resets.get(step, ())
            assert rows[step]['is_first'] == (asked or rows[step - 1]['is_last'])


def test_each_member_depends_on_its_own_seed_alone():
    three = play(FunctionalVectorEnv(CartPole(), 3, seed=[4, 5, 2**40 + 6]), 40)
    assert not np.array_equal(three[0][0][1]['vector'], three[1][0][1]['vector'])
    pair = play(FunctionalVectorEnv(CartPole(), 2, seed=4), 1)
    assert_equal(three[0][:1], pair[0])
    assert_equal(three[1][:1], pair[1])
    unseeded = [play(FunctionalVectorEnv(CartPole(), 1), 1)[0] for _ in range(2)]
    first, second = (stream[0][1]['vector'] for stream in unseeded)
    assert not np.array_equal(first, second)


def test_a_larger_program_gives_the_same_rows():
    env = FunctionalVectorEnv(CartPole(), 3, seed=7)
    streams = play(env, 30)
    actions = {
        key: np.array([[stream[t][0][key] for stream in streams] for t in range(30)])
        for key in env.act_space
    }
    _, rows = jax.jit(lambda x, y: jax.lax.scan(env.step_members, x, y))(
        env.init_members(7), actions
    )
    assert rows.keys() == env.obs_space.keys()
    for member, stream in enumerate(streams):
        for step, (_, row) in enumerate(stream):
            for key, value in row.items():
                assert rows[key].dtype == env.obs_space[key].dtype
                np.testing.assert_allclose(rows[key][step, member], value, 1e-5, 1e-6)


def test_a_saved_state_goes_on_exactly():
    env = FunctionalVectorEnv(CartPole(), 3, seed=7)
    play(env, 10)
    data = pickle.loads(pickle.dumps(env.save()))
    rest = play_on(env, 40)
    other = FunctionalVectorEnv(CartPole(), 3, seed=0)
    other.load(data)
    again = play_on(other, 40)
    for before, after in zip(rest, again, strict=True):
        assert all(np.array_equal(before[key], after[key]) for key in before)
    assert any(row['is_last'].any() for row in rest)
    with pytest.raises(ConfigError, match='other settings'):
        FunctionalVectorEnv(CartPole(), 2, seed=0).load(data)


def play_on(env, steps):
    action = np.arange(env.num, dtype=np.int32) % 2
    acts = {'action': action, 'reset': np.zeros(env.num, bool)}
    return [jax.tree.map(np.array, env.step(acts)) for _ in range(steps)]


class Odd(FunctionalEnv):
    """Numbers and arrays that agents do not take as they are; random keys in the state.

    Its state has other dtypes after a step than at the beginning.
    """

    obs_space = {  # noqa: RUF012
        'picture': elements.Space(np.float32, (3, 20, 24), -1, 1),
        'grid': elements.Space(np.float32, (10, 10, 4), 0, 1),
        'symbol': elements.Space(np.int8, (), 0, 7),
        'log/steps': elements.Space(np.float32),
    }
    act_space = {  # noqa: RUF012
        'force': elements.Space(np.float32, (2,), [-2, 0], [2, 10]),
    }

    def init(self, key):
        state = {'key': jax.random.key(jax.random.bits(key)), 'steps': jnp.int32(0)}
        return state, self._observe(state, jnp.zeros(2))

    def transition(self, key, state, action):
        drawn, _ = jax.random.split(state['key'])
        state = {'key': drawn, 'steps': state['steps'] + 1.0}
        obs = self._observe(state, action['force'])
        return state, obs, action['force'].sum(), jnp.bool_(False), jnp.bool_(False)

    def _observe(self, state, force):
        picture = jax.random.uniform(state['key'], (3, 20, 24), minval=-1)
        return {
            'picture': picture.at[0, 0].set(force[0] / 2),
            'grid': jnp.ones((10, 10, 4)),
            'symbol': state['steps'] % 7,
            'log/steps': state['steps'],
        }


def test_odd_spaces_become_those_of_agents_within_the_program():
    env = CheckSpaces(FunctionalVectorEnv(for_agents(Odd(), size=32, length=4), 2, 3))
    kinds = {k: (v.dtype.name, v.shape) for k, v in env.obs_space.items()}
    assert kinds['picture'] == ('uint8', (32, 32, 3))
    assert kinds['grid'] == ('float32', (400,))
    assert kinds['symbol'] == ('int32', ())
    assert kinds['log/steps'] == ('float32', ())
    force = env.act_space['force']
    assert (force.low.tolist(), force.high.tolist()) == ([-1, -1], [1, 1])
    for stream in play(envs.registry.wrap(env), 11):
        rows = rows_of(stream)
        assert [int(row['log/steps']) for row in rows[:6]] == [0, 1, 2, 3, 4, 0]
        assert [bool(row['is_last']) for row in rows[:6]] == [0, 0, 0, 0, 1, 0]
        assert not any(row['is_terminal'] for row in rows)


def test_pictures_are_converted_as_on_the_host():
    traced = FunctionalVectorEnv(for_agents(Odd()), 2, seed=3)
    host = ConvertArrays(envs.registry.adjust(FunctionalVectorEnv(Odd(), 2, seed=3)))
    reset = {'force': np.zeros((2, 2), np.float32), 'reset': np.ones(2, bool)}
    picture = np.array(traced.step(reset)['picture'])
    assert picture.shape == (2, 20, 24, 3) and picture.std() > 10
    np.testing.assert_array_equal(picture, host.step(reset)['picture'])


def test_actions_are_scaled_and_clipped():
    env = FunctionalVectorEnv(for_agents(Odd()), 4, seed=3)
    force = np.array([[-1, -1], [1, 1], [0, 0], [-5, 5]], np.float32)
    actions = {'force': force, 'reset': np.ones(4, bool)}
    env.step(actions)
    rows = env.step({**actions, 'reset': np.zeros(4, bool)})
    assert np.array(rows['reward']).tolist() == [-2, 12, 5, 8]


def test_keys_of_random_numbers_are_saved():
    env = FunctionalVectorEnv(Odd(), 2, seed=3)
    acts = {'force': np.zeros((2, 2), np.float32), 'reset': np.zeros(2, bool)}
    env.step(acts)
    data = pickle.loads(pickle.dumps(env.save()))
    other = FunctionalVectorEnv(Odd(), 2, seed=0)
    other.load(data)
    a, b = env.step(acts), other.step(acts)
    np.testing.assert_array_equal(a['picture'], b['picture'])


def test_it_is_played_by_the_driver():
    driver = embodied.Driver(
        [lambda: FunctionalVectorEnv(CartPole(), 4, 1)] * 8, parallel=False
    )
    agent = embodied.RandomAgent(
        driver.obs_space, {'action': driver.act_space['action']}
    )
    rows = []
    driver.on_step(lambda tran, worker: rows.append((worker, tran)))
    driver.reset(agent.init_policy)
    driver(agent.policy, steps=80)
    driver.close()
    assert {worker for worker, _ in rows} == set(range(8))
    assert isinstance(rows[0][1]['vector'], np.ndarray)


def test_what_cannot_work_is_refused():
    with pytest.raises(ConfigError, match='num >= 1, got 0'):
        FunctionalVectorEnv(CartPole(), 0)
    with pytest.raises(ConfigError, match='3 members got 2 seeds'):
        FunctionalVectorEnv(CartPole(), 3, [1, 2])
    with pytest.raises(ConfigError, match='length >= 1, got -1'):
        for_agents(CartPole(), length=-1)
    with pytest.raises(ConfigError, match=r'CartPole.*FunctionalVectorEnv'):
        own.build(CartPole)

    class Clash(CartPole):
        act_space = {'vector': elements.Space(np.int32, (), 0, 2)}  # noqa: RUF012

    with pytest.raises(SpaceError, match=r"\['vector'\]"):
        FunctionalVectorEnv(Clash(), 2)


def test_jax_is_loaded_when_members_are_made_and_not_before():
    code = """
import pkgutil, sys
import embodied.envs, embodied.envs.vector as package
from embodied.envs import registry
for module in pkgutil.walk_packages(package.__path__, package.__name__ + '.'):
    __import__(module.name)
for suite in registry.tasks():
    registry.settings_of(suite.suite)
print('jax' in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, '-c', code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == 'False'
