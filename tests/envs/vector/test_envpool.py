"""EnvPool, where it is installed, plays by the contract of vector environments."""

import numpy as np
import pytest
from members import assert_same, play

from embodied import envs
from embodied.core.errors import ConfigError
from embodied.envs.adapters import own
from embodied.envs.vector.one_member import one_member

envpool = pytest.importorskip(
    'envpool', reason="EnvPool is missing: pip install 'dreamer-parallel[envpool]'"
)

SEEDS = [5, 17, 2**40]
# EnvPool writes bounds in float64 into spaces of float32.
pytestmark = pytest.mark.filterwarnings('ignore:.*precision lowered')


def make(task='envpool:CartPole-v1', seed=SEEDS, **settings):
    return envs.make(task, seed, num=len(seed), **settings)


@pytest.mark.parametrize('settings', [{}, {'length': 7}])
def test_members_give_the_transitions_of_a_pool_of_one(settings):
    env = make(**settings)
    streams = play(env, 120, resets={9: [1], 30: [0, 2]})
    env.close()
    for seed, stream in zip(SEEDS, streams, strict=True):
        assert sum(row['is_last'] for _, row in stream) > 2
        assert_same(one_member(make(seed=[seed], **settings)), stream)


def test_last_observations_are_those_in_which_the_pole_has_fallen():
    for stream in play(make(), 120):
        for _, row in stream:
            x, _, angle, _ = row['vector']
            assert (abs(x) > 2.4 or abs(angle) > np.radians(12)) == row['is_last']
            assert row['is_last'] == row['is_terminal']
            assert (row['reward'] == 0) == row['is_first']


def test_infos_are_logged():
    env = make(log='elapsed_step')
    for stream in play(env, 60):
        counted = 0
        for _, row in stream:
            counted = 0 if row['is_first'] else counted + 1
            assert row['log/elapsed_step'] == counted


def test_pictures_have_one_frame_and_the_size_of_agents():
    env = make('envpool:Pong-v5', seed=[1, 2])
    assert env.obs_space['image'].shape == (64, 64, 1)
    (_, row), *_ = play(env, 2)[0]
    assert row['image'].std() > 0


def test_made_up_bounds_are_left_out():
    env = make('envpool:CartpoleSwingup-v1', seed=[1, 2])
    rows = [row for _, row in play(env, 20)[0]]
    assert min(row['velocity'].min() for row in rows) < 0
    assert not np.isfinite(env.obs_space['velocity'].low).any()


def test_factories_may_return_a_pool():
    pool = envpool.make('CartPole-v1', env_type='gymnasium', num_envs=3, seed=1)
    env = own.adapt(pool)
    assert env.num == 3 and env.resets_members
    play(envs.wrap(env), 10)


@pytest.mark.parametrize(
    ('settings', 'words'),
    [
        (
            {'env_type': 'gymnasium', 'batch_size': 2},
            '3 environments steps 2 at a time',
        ),
        ({'env_type': 'dm'}, "env_type='gymnasium'"),
    ],
)
def test_pools_of_other_kinds_are_refused(settings, words):
    pool = envpool.make('CartPole-v1', num_envs=3, **settings)
    with pytest.raises(ConfigError, match=words):
        own.adapt(pool)


def test_unknown_ids_are_refused():
    with pytest.raises(ConfigError, match=r"'CartPle-v1'.*CartPole-v1"):
        make('envpool:CartPle-v1')
