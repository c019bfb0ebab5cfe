"""Vector environments of Gymnasium give the transitions that single ones give."""

import functools

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from members import Counting, assert_same, play

from embodied import envs
from embodied.core.errors import ConfigError, SpaceError
from embodied.envs.adapters.from_gym import FromGym
from embodied.envs.vector.gymnasium_vector import FromGymnasiumVector
from embodied.envs.wrappers import CheckSpaces

MEMBERS = 4
SEEDS = [5, 17, 3, 900]
LOG = ['half', 'fresh']
TASKS = {
    'cartpole': (functools.partial(gymnasium.make, 'CartPole-v1'), []),
    'counting': (Counting, LOG),
}
modes = pytest.mark.parametrize('mode', AutoresetMode, ids=lambda x: x.name)
tasks = pytest.mark.parametrize('task', TASKS)


def members_of(make, mode, **settings):
    env = SyncVectorEnv([make] * MEMBERS, autoreset_mode=mode)
    return CheckSpaces(FromGymnasiumVector(env, seed=SEEDS, **settings))


@modes
@tasks
def test_members_give_the_transitions_of_single_environments(task, mode):
    make, log = TASKS[task]
    env = members_of(make, mode, log=log)
    streams = play(env, 120)
    env.close()
    for seed, stream in zip(SEEDS, streams, strict=True):
        ends = [row for _, row in stream if row['is_last']]
        assert len(ends) > 2 and all(abs(row['reward']) > 0 for row in ends)
        assert_same(FromGym(make(), seed=seed, log=log), stream)


@modes
def test_known_episodes_have_their_lengths_and_ends(mode):
    env = members_of(Counting, mode)
    for stream in play(env, 50):
        rows = [row for _, row in stream]
        firsts = [index for index, row in enumerate(rows) if row['is_first']]
        lasts = [index for index, row in enumerate(rows) if row['is_last']]
        lengths = [b - a for a, b in zip(firsts, lasts, strict=False)]
        assert lengths[:7] == [1, 2, 3, 1, 2, 3, 1]
        assert [bool(rows[x]['is_terminal']) for x in lasts[:4]] == [0, 1, 0, 1]
        assert all(rows[x]['reward'] == 0 for x in firsts)


@modes
def test_members_that_are_reset_in_mid_episode_begin_while_others_go_on(mode):
    resets = {3: [0], 7: [0, 2], 8: [1], 30: [0, 1, 2, 3], 31: [3]}
    make, _ = TASKS['cartpole']
    env = members_of(make, mode)
    assert env.resets_members
    for seed, stream in zip(SEEDS, play(env, 90, resets), strict=True):
        assert_same(FromGym(make(), seed=seed), stream)


@modes
def test_a_step_in_which_an_episode_is_cut_off_leaves_no_last_row(mode):
    env = members_of(Counting, mode)
    # The first episodes end in the second row, which all but member 3 cut off.
    streams = play(env, 4, resets={1: [0, 1, 2]})
    for stream in streams[:3]:
        assert [bool(row['is_first']) for _, row in stream[:2]] == [True, True]
        assert not any(row['is_last'] for _, row in stream[:2])
    assert streams[3][1][1]['is_last']


def test_processes_give_the_same():
    make, _ = TASKS['cartpole']
    inner = AsyncVectorEnv([make] * 2, context='spawn')
    env = FromGymnasiumVector(inner, seed=SEEDS[:2])
    streams = play(env, 60, resets={5: [1]})
    env.close()
    for seed, stream in zip(SEEDS, streams, strict=False):
        assert_same(FromGym(make(), seed=seed), stream)


@pytest.mark.parametrize('settings', [{}, {'length': 7}])
def test_ids_with_vector_give_what_they_give_alone(settings):
    env = envs.make('gym:CartPole-v1', SEEDS, vector=True, num=MEMBERS, **settings)
    streams = play(env, 90)
    env.close()
    for seed, stream in zip(SEEDS, streams, strict=True):
        assert_same(envs.make('gym:CartPole-v1', seed, **settings), stream)


@modes
def test_a_time_limit_cuts_members_off_as_single_environments(mode):
    make, _ = TASKS['cartpole']
    limit = functools.partial(envs.registry.adjust, length=20)
    ends = []
    for seed, stream in zip(
        SEEDS, play(limit(members_of(make, mode)), 120), strict=True
    ):
        ends += [bool(row['is_terminal']) for _, row in stream if row['is_last']]
        assert_same(limit(FromGym(make(), seed=seed)), stream)
    assert any(ends) and not all(ends)


def test_one_seed_counts_up_over_the_members():
    env = envs.make('gym:CartPole-v1', 5, vector=True, num=3)
    for seed, stream in zip([5, 6, 7], play(env, 5), strict=True):
        assert_same(envs.make('gym:CartPole-v1', seed), stream)


def test_a_library_that_takes_one_seed_and_resets_no_single_member():
    inner = gymnasium.make_vec('CartPole-v1', 3, 'vector_entry_point')
    env = CheckSpaces(FromGymnasiumVector(inner, seed=[4, 5, 6]))
    assert not env.resets_members
    streams = play(env, 150, resets={5: [0]})
    for stream in streams:
        follows = [(a[1]['is_last'], b[1]['is_first']) for a, b in _pairs(stream)]
        assert all(last == first for last, first in follows)
        assert any(last for last, _ in follows)


def _pairs(stream):
    return zip(stream[:-1], stream[1:], strict=True)


def test_all_members_are_reset_where_single_ones_cannot_be():
    inner = gymnasium.make_vec('CartPole-v1', 3, 'vector_entry_point')
    env = FromGymnasiumVector(inner, seed=4)
    streams = play(env, 8, resets={5: [0, 1, 2]})
    assert all(stream[5][1]['is_first'] for stream in streams)


class Batched(gymnasium.vector.VectorEnv):
    """Resets in the same step and keeps the last observations as one array, as
    simulators on a GPU do."""

    num_envs = 2
    single_observation_space = gymnasium.spaces.Box(-9, 9, (1,), np.float32)
    single_action_space = gymnasium.spaces.Discrete(2)
    final = 'final_observation'

    def reset(self, seed=None, options=None):
        self.count = np.zeros(2, np.float32)
        return self.count[:, None].copy(), {}

    def step(self, actions):
        self.count += 1
        last = self.count[:, None].copy()
        terminated = self.count == [2, 3]
        self.count[terminated] = 0
        info = {'speed': np.array([1.0, 2.0])}
        if terminated.any():
            info |= {self.final: last, 'final_info': {'speed': np.array([7.0, 8.0])}}
        truncated = np.zeros(2, bool)
        return self.count[:, None].copy(), np.ones(2), terminated, truncated, info


def test_last_observations_may_be_one_array_of_all_members():
    env = FromGymnasiumVector(Batched(), log=['speed'], autoreset='SAME_STEP')
    first, second = play(env, 7)
    numbers = [float(row['vector'][0]) for _, row in first]
    assert numbers == [0, 1, 2, 0, 1, 2, 0, 1, 2, 0]
    assert [float(row['log/speed']) for _, row in first[:5]] == [0, 1, 7, 1, 1]
    assert [float(row['vector'][0]) for _, row in second] == [0, 1, 2, 3, 0, 1, 2, 3, 0]


def test_an_environment_that_loses_last_observations_is_named():
    class Losing(Batched):
        final = 'lost'

    env = FromGymnasiumVector(Losing(), autoreset='SAME_STEP')
    with pytest.raises(SpaceError, match=r"Losing.*'final_obs'.*'lost'"):
        play(env, 3)


def test_the_mode_of_resetting_has_to_be_known():
    with pytest.raises(ConfigError, match=r'Batched does not say.*autoreset_mode'):
        FromGymnasiumVector(Batched())
    with pytest.raises(ConfigError, match=r"got 'now'.*SAME_STEP"):
        FromGymnasiumVector(Batched(), autoreset='now')


@pytest.mark.parametrize('mode', AutoresetMode, ids=lambda x: x.name)
def test_a_name_that_no_info_has_is_an_error_at_the_end_of_an_episode(mode):
    env = members_of(Counting, mode, log=['hlf'])
    with pytest.raises(ConfigError, match=r"\['hlf'\].*'half'"):
        play(env, 9)


def test_only_numbers_of_infos_can_be_logged():
    class Worded(Batched):
        def reset(self, seed=None, options=None):
            return super().reset()[0], {'speed': np.array(['fast', 'slow'])}

    env = FromGymnasiumVector(Worded(), log=['speed'], autoreset='SAME_STEP')
    with pytest.raises(SpaceError, match="'speed'.*numbers only"):
        play(env, 1)


@pytest.mark.parametrize('seed', [[1], [1, 2, 3]])
def test_there_are_as_many_seeds_as_members(seed):
    with pytest.raises(ConfigError, match=f'2 members got {len(seed)} seeds'):
        FromGymnasiumVector(Batched(), seed=seed, autoreset='SAME_STEP')


def test_no_members_are_refused():
    with pytest.raises(ConfigError, match='num >= 1, got 0'):
        envs.make('gym:CartPole-v1', 0, vector=True, num=0)
