"""Task names become environments that agents can use as they are."""

import subprocess
import sys
from importlib.resources import files

import elements
import numpy as np
import pytest
from ruamel.yaml import YAML
from scripted_env import Scripted, play

from embodied import envs
from embodied.core.errors import ConfigError, SpaceError
from embodied.core.random_agent import RandomAgent
from embodied.envs import registry


@pytest.mark.parametrize(
    'task, settings, keys',
    [
        ('toy_catch', {'size': 16, 'board': 8}, {'image'}),
        ('toy_reach', {'size': 16, 'board': 8}, {'position', 'velocity', 'target'}),
        ('dummy_disc', {'size': 8, 'length': 4}, None),
        ('dummy_cont', {'size': 8}, None),
        ('dummy_mixed', {}, None),
        ('gym_CartPole-v1', {}, {'vector'}),
        ('gym_Pendulum-v1', {'repeat': 2, 'length': 7, 'size': 0}, {'vector'}),
    ],
)
def test_tasks_play_under_random_actions(task, settings, keys):
    env = envs.make(task, seed=0, **settings)
    agent = RandomAgent(env.obs_space, env.act_space, seed=0)
    for index in range(40):
        _, acts, _ = agent.policy((), {'is_first': np.zeros(1)})
        obs = env.step({'reset': False, **{k: v[0] for k, v in acts.items()}})
        assert index or obs['is_first']
    if keys is not None:
        common = {'reward', 'is_first', 'is_last', 'is_terminal'}
        assert env.obs_space.keys() == keys | common
    for space in [*env.obs_space.values(), *env.act_space.values()]:
        assert space.dtype.name in ('float32', 'int32', 'uint8', 'bool')
    env.close()


def test_settings_reach_the_environment():
    assert envs.make('toy_catch', size=16).obs_space['image'].shape == (16, 16, 3)
    assert envs.make('dummy_disc', size=8).obs_space['image'].shape == (8, 8, 3)
    limited = envs.make('gym_Pendulum-v1', seed=0, length=5)
    observations = play(limited, [{'reset': False}] * 5)
    assert [bool(obs['is_last']) for obs in observations] == [False] * 5 + [True]


def test_configuration_and_suites_have_the_same_settings():
    text = files('dreamerv3').joinpath('configs.yaml').read_text()
    options = YAML(typ='safe').load(text)['defaults']['env']
    suites = [suite.suite for suite in envs.tasks()]
    # The run says how many members a vector environment has.
    expected = {name: set(registry.settings_of(name)) - {'num'} for name in suites}
    assert {k: set(v) for k, v in options.items()} == {
        k: v for k, v in expected.items() if v
    }


def test_tasks_lists_every_suite_with_its_names():
    listed = {suite.suite: suite for suite in envs.tasks()}
    assert {'toy', 'dummy', 'gym', 'atari', 'dmc', 'crafter'} <= listed.keys()
    assert listed['toy'].names == ('catch', 'reach')
    assert {listed[name].extra for name in ('toy', 'dummy', 'gym')} == {''}
    assert listed['atari100k'].extra == 'atari' and listed['atari100k'].installed
    assert 'pong' in listed['atari100k'].names
    for suite in (listed['toy'], listed['dummy']):
        for name in suite.names:
            envs.make(f'{suite.suite}_{name}').close()


@pytest.mark.parametrize(
    'task, words',
    [
        ('toy_cach', ['toy_cach', 'Closest matches: toy_catch']),
        ('dumy_disc', ['dumy_disc', 'Closest matches: dummy_disc']),
        ('dummy_fly', ['dummy_fly', '{disc,cont,mixed}']),
        ('CartPole-v1', ['CartPole-v1', 'gym_<id']),
        ('gym_CartPle-v1', ['CartPole-v1']),
        ('', ['toy_{catch,reach}', 'dreamer tasks']),
        ('atari_pnog', ['Closest matches: atari_pong']),
    ],
)
def test_unknown_tasks_are_refused_with_the_closest_matches(task, words):
    with pytest.raises(ConfigError) as error:
        envs.make(task)
    assert all(word in str(error.value) for word in words)


def test_unknown_settings_are_refused():
    with pytest.raises(ConfigError, match=r"'sizes'.*size, board"):
        envs.make('toy_catch', sizes=16)


# Standard wrapping


def test_policies_may_sample_beyond_the_bounds_of_any_dtype():
    act = {
        'gas': elements.Space(np.float64, (2,), [0, -4], [10, 4]),
        'free': elements.Space(np.float32, ()),
        'gear': elements.Space(np.int64, (), 0, 3),
    }
    inner = Scripted(act=act)
    env = envs.wrap(inner)
    assert env.act_space['gas'].high.tolist() == [1, 1]
    env.step(
        {
            'gas': np.float32([2.5, -0.5]),
            'free': np.float32(7),
            'gear': np.int32(2),
            'reset': False,
        }
    )
    got = inner.got[-1]
    assert got['gas'].tolist() == [10, -2]
    assert got['free'] == 7
    assert [got[k].dtype.name for k in act] == ['float64', 'float32', 'int64']


def test_actions_that_clipping_cannot_mend_are_named():
    space = elements.Space(np.float32, (), -2, 2)
    env = envs.wrap(Scripted(act={'push': space}))
    with pytest.raises(SpaceError, match=r"'push'.*NaN"):
        env.step({'push': np.float32('nan'), 'reset': False})


def test_observations_are_checked_as_the_agent_gets_them():
    space = {'x': elements.Space(np.float64, (), 0, 1)}
    env = envs.wrap(Scripted(obs=space, values={'x': 1.5}))
    with pytest.raises(SpaceError, match=r"'x'.*from 0 to 1, got float32.*1\.5"):
        env.step({'action': np.int32(0), 'reset': True})


def test_limits_count_actions_not_repeated_steps():
    inner = Scripted(length=100)
    observations = play(envs.wrap(inner, repeat=3, length=2), [{'reset': False}] * 2)
    assert [float(obs['reward']) for obs in observations] == [0, 1 + 2 + 3, 4 + 5 + 6]
    assert observations[-1]['is_last'] and not observations[-1]['is_terminal']


@pytest.mark.parametrize(
    'name', ['gymnasium', 'dm_env', 'ale_py', 'jax', 'cloudpickle']
)
def test_built_in_tasks_load_no_package_they_do_not_need(name):
    code = (
        'import sys, embodied; embodied.envs.make("toy_catch"); embodied.envs.tasks(); '
        f'sys.exit({name!r} in sys.modules)'
    )
    subprocess.run([sys.executable, '-c', code], check=True)
