"""Factories of users may return vector environments."""

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from members import Counting, assert_same, play

from embodied import envs
from embodied.core.errors import ConfigError
from embodied.envs.adapters import own
from embodied.envs.adapters.from_gym import FromGym

MODULE = """
import gymnasium
from members import Counting

def make_vector():
    return gymnasium.vector.SyncVectorEnv([Counting] * 3)
"""


def test_the_task_of_a_function_that_returns_one(monkeypatch, tmp_path):
    (tmp_path / 'my_vectors.py').write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    settings = {'log': 'half', 'length': 2, 'size': 8}
    env = envs.make('my_vectors:make_vector', 4, **settings)
    streams = play(env, 30)
    for seed, stream in zip([4, 5, 6], streams, strict=True):
        single = own.adapt(Counting(), seed, ['half'])
        single = envs.registry.wrap(envs.registry.adjust(single, length=2, size=8))
        assert_same(single, stream)


def test_wrappers_of_gymnasium_stay():
    inner = SyncVectorEnv([Counting] * 2, autoreset_mode=AutoresetMode.SAME_STEP)
    scaled = gymnasium.wrappers.vector.TransformReward(inner, lambda x: 10 * x)
    streams = play(own.adapt(scaled, seed=1), 20)
    for seed, stream in zip([1, 2], streams, strict=True):
        single = gymnasium.wrappers.TransformReward(Counting(), lambda x: 10 * x)
        assert_same(FromGym(single, seed=seed), stream)


class Baselines:
    """The interface of VecEnv in stable-baselines3."""

    num_envs = 4
    observation_space = gymnasium.spaces.Box(-1, 1, (3,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self):
        raise AssertionError('not to be played')

    def step_wait(self):
        raise AssertionError('not to be played')


class Simulator(Baselines):
    """The interface of Isaac Lab: an Env of Gymnasium with rows of many."""

    single_observation_space = Baselines.observation_space


@pytest.mark.parametrize('kind', [Baselines, Simulator])
def test_other_vector_environments_are_refused_with_the_contract(kind):
    words = rf'{kind.__name__} is a vector environment of 4.*embodied\.VectorEnv'
    with pytest.raises(ConfigError, match=words):
        own.build(kind)
    with pytest.raises(ConfigError, match=words):
        FromGym(kind())
