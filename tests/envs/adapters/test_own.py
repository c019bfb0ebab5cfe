"""Environments of users: found by name, adapted, sent through files."""

import importlib
import shutil
import sys
import threading

import dm_env
import gymnasium
import numpy as np
import pytest
from dm_env import specs

from embodied import envs
from embodied.core.errors import ConfigError, SpaceError
from embodied.envs import registry
from embodied.envs.adapters import own

MODULE = """
import gymnasium
import numpy as np

class Count(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 9, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    def __init__(self, start=0):
        self.start = start
    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        return np.full(1, self.start, np.float32), {}
    def step(self, action):
        return np.full(1, self.start + 1, np.float32), 1.0, False, True, {}

def make_env():
    return Count(3)

def seeded(seed):
    return Count(seed % 5)

def needy(index, size):
    return Count()

class makers:
    other = Count

text = 'no factory'
gymnasium.register('own_counts/Count-v0', entry_point=Count)
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / 'own_counts.py').write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))


def first(env):
    action = {k: np.zeros(v.shape, v.dtype) for k, v in env.act_space.items()}
    return env.step({**action, 'reset': True})


@pytest.mark.parametrize(
    'task, value',
    [
        ('own_counts:make_env', 3),
        ('own_counts:seeded', 2),
        ('own_counts:Count', 0),
        ('own_counts:makers.other', 0),
        ('gym:own_counts/Count-v0', 0),
    ],
)
def test_tasks_name_factories_of_modules(module, task, value):
    assert first(envs.make(task, seed=7))['vector'] == value


@pytest.mark.parametrize(
    'task, words',
    [
        ('own_nothing:make_env', ['own_nothing', 'pip install -e']),
        ('own_counts:make_evn', ['make_evn', 'make_env']),
        ('own_counts:text', ['str']),
        ('own_counts:needy', ['seed', 'index']),
        ('pathlib:Path', ['PosixPath', 'observation_space', 'obs_space']),
        ('gym:own_nowhere/Count-v0', ['own_nowhere']),
        ('own_counts', ['own_counts', 'dreamer tasks']),
    ],
)
def test_mistakes_say_what_to_do(module, task, words):
    with pytest.raises(ConfigError) as error:
        envs.make(task)
    assert all(word in str(error.value) for word in words)


def test_errors_inside_of_a_module_are_not_taken_for_its_absence(tmp_path, monkeypatch):
    (tmp_path / 'own_broken.py').write_text('import own_dependency\n')
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ModuleNotFoundError, match='own_dependency'):
        envs.make('own_broken:make_env')


def test_settings_apply_to_environments_of_users(module):
    env = envs.make('own_counts:make_env', 0, repeat=1, length=1, size=0)
    first(env)
    obs = env.step({'action': np.int32(0), 'reset': False})
    assert obs['is_last'] and not obs['is_terminal']


class Dm(dm_env.Environment):
    def reset(self):
        return dm_env.restart(np.zeros(2))

    def step(self, action):
        return dm_env.termination(1.0, np.zeros(2))

    def observation_spec(self):
        return specs.Array((2,), np.float64)

    def action_spec(self):
        return specs.DiscreteArray(3)


@pytest.mark.parametrize(
    'make, actions', [(Dm, 3), (lambda: gymnasium.make('CartPole-v1'), 2)]
)
def test_foreign_interfaces_are_recognized(make, actions):
    env = envs.wrap(own.build(make, 0))
    assert env.act_space['action'].high == actions
    assert first(env)['is_first']


def test_environments_of_ours_are_left_alone():
    inner = envs.Catch(16)
    assert own.adapt(inner) is inner


def test_factories_travel_through_files(tmp_path):
    start = 4

    def make():
        return envs.Catch(8 * start)

    task = own.save(make, tmp_path / 'run' / 'make_env.pkl')
    assert registry.parse(task) == ('own', task)
    assert envs.make(task, size=0).obs_space['image'].shape == (32, 32, 3)
    (tmp_path / 'run' / 'make_env.pkl').unlink()
    with pytest.raises(ConfigError, match='gone'):
        envs.make(task)


def test_factories_that_cannot_travel_are_refused(tmp_path):
    lock = threading.Lock()
    with pytest.raises(ConfigError, match='Create files'):
        own.save(lambda: lock, tmp_path / 'make_env.pkl')


class Unbounded(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 1, (3, 8, 8), np.float32)
    action_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros((3, 8, 8), np.float32), {}

    def step(self, action):
        assert np.abs(action).max() <= 3
        return np.ones((3, 8, 8), np.float32), 0.0, False, False, {'goal': 1}


@pytest.fixture
def odd(tmp_path):
    path = tmp_path / 'odd.pkl'
    return own.save(lambda: Unbounded(), path)


@pytest.mark.parametrize(
    ('settings', 'words'),
    [
        ({}, r"'vector'.*env\.own\.convert True"),
        ({'convert': True}, r"'action' has no finite bounds.*env\.own\.bound"),
    ],
)
def test_odd_spaces_are_refused_with_the_option_that_helps(odd, settings, words):
    with pytest.raises(SpaceError, match=words):
        envs.make(odd, **settings)


def test_options_make_odd_environments_playable(odd):
    env = envs.make(odd, convert=True, bound=3.0, log='goal', size=16)
    assert env.obs_space['vector'].shape == (16, 16, 3)
    first(env)
    action = {'action': np.full(2, 7, np.float32), 'reset': np.bool_(False)}
    obs = env.step(action)
    assert (obs['vector'] == 255).all()
    assert obs['log/goal'] == 1


def test_infos_to_log_are_those_of_gymnasium_only(tmp_path):
    task = own.save(lambda: envs.Dummy('disc'), tmp_path / 'dummy.pkl')
    with pytest.raises(ConfigError, match=r'goal.*Gymnasium.*Dummy'):
        envs.make(task, log='goal')


def test_a_pickled_factory_says_which_module_it_lacks(tmp_path, monkeypatch):
    (tmp_path / 'passing_module.py').write_text('class Maker:\n  pass\n')
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module('passing_module')
    task = own.save(module.Maker, tmp_path / 'maker.pkl')
    (tmp_path / 'passing_module.py').unlink()
    monkeypatch.delitem(sys.modules, 'passing_module')
    shutil.rmtree(tmp_path / '__pycache__', ignore_errors=True)
    importlib.invalidate_caches()
    with pytest.raises(ConfigError, match="needs the module 'passing_module'"):
        own.find(task)


def test_wrap_takes_environments_of_gymnasium():
    env = envs.wrap(gymnasium.make('CartPole-v1'))
    assert first(env)['is_first']
    assert registry.is_wrapped(env)
