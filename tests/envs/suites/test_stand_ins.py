"""Adapters of packages that cannot be installed here, against stand-ins of them.

They show that the adapters do what the documented interfaces ask for, not that the
documents are right.
"""

import numpy as np
import pytest
import stand_ins

from embodied import envs
from embodied.envs.suites.minecraft import ACTIONS, MILESTONES


@pytest.fixture(autouse=True)
def packages(monkeypatch):
    stand_ins.install(monkeypatch)


def act(env, action, reset=False):
    return env.step({'action': np.int32(action), 'reset': reset})


def inner(env, name='_env'):
    return getattr(env, name)


def test_levels_of_lab_repeat_actions_and_end_by_time():
    env = envs.make('dmlab_explore_goal_locations_small', seed=0)
    lab = inner(env)
    assert lab.about['level'].endswith('dmlab30/explore_goal_locations_small')
    first = act(env, 0, True)
    assert first['is_first'] and first['image'].shape == (64, 64, 3)
    second, last = act(env, 0), act(env, 4)
    assert second['reward'] == 4 and not second['is_last']
    assert last['reward'] == 1 and last['is_last'] and not last['is_terminal']
    assert (last['image'] == second['image']).all()
    assert lab.actions == [[0, 0, 0, 1, 0, 0, 0], [-10, 0, 0, 0, 0, 0, 0]]
    act(env, 0)
    assert len(set(lab.seeds)) == 2  # another one for each episode


def test_lab_has_levels_apart_for_evaluation():
    train = inner(envs.make('dmlab_rooms_watermaze', seed=0))
    apart = inner(envs.make('dmlab_rooms_watermaze', seed=0, holdout=True))
    assert 'mixerSeed' not in train.about['config']
    assert apart.about['config']['mixerSeed'].isdigit()


@pytest.mark.parametrize('size', [64, 96])
def test_games_of_procgen_end_with_their_own_last_image(size):
    env = envs.make('procgen_coinrun', seed=5, size=size)
    assert inner(env).settings['rand_seed'] == 5
    seen = [act(env, 0, True), act(env, 1), act(env, 1), act(env, 1), act(env, 1)]
    assert [int(obs['image'][0, 0, 0]) for obs in seen] == [0, 1, 2, 2, 10]
    assert [float(obs['reward']) for obs in seen] == [0, 1, 2, 3, 0]
    assert seen[3]['is_last'] and seen[3]['is_terminal'] and seen[4]['is_first']
    assert seen[0]['image'].shape == (size, size, 3)


def test_games_of_procgen_can_be_abandoned():
    env = envs.make('procgen_coinrun', seed=0, size=64)
    act(env, 0, True), act(env, 1)
    again = act(env, 0, True)
    assert again['is_first'] and again['image'][0, 0, 0] == 10
    assert act(env, 1)['reward'] == 1


def world_of(env):
    return inner(env)


def test_milestones_of_minecraft_pay_once():
    env = envs.make('minecraft_diamond', seed=3)
    world = world_of(env)
    assert world.seeds == [3]
    act(env, 0, True)
    world.script = [({'log': 2}, 20), ({'log': 1, 'planks': 4}, 20), ({'log': 5}, 18)]
    seen = [act(env, 0) for _ in range(3)]
    rewards = [round(float(obs['reward']), 4) for obs in seen]
    assert rewards == [1, 1, -0.02]
    most = dict(zip(MILESTONES, seen[-1]['inventory_max'], strict=True))
    assert (most['log'], most['planks'], most['diamond']) == (5, 4, 0)
    assert seen[-1]['log/milestones'] == 2
    assert seen[-1]['health'] == pytest.approx(0.9)


def test_minecraft_ends_by_death_or_time_limit():
    env = envs.make('minecraft_diamond', seed=0, length=2)
    act(env, 0, True)
    assert not act(env, 0)['is_last']
    late = act(env, 0)
    assert late['is_last'] and not late['is_terminal']
    act(env, 0)
    world_of(env).script = [({}, 0)]
    dead = act(env, 0)
    assert dead['is_last'] and dead['is_terminal']


def test_attacks_go_on_and_the_camera_has_limits():
    env = envs.make('minecraft_diamond', seed=0, sticky_attack=3)
    world = world_of(env)
    attack = ACTIONS.index({'attack': 1})
    down = ACTIONS.index({'camera': (15.0, 0)})
    act(env, 0, True)
    for action in (attack, 0, 0, 0):
        act(env, action)
    assert [command['attack'] for command in world.commands] == [1, 1, 1, 0]
    for _ in range(6):
        act(env, down)
    turned = [float(command['camera'][0]) for command in world.commands[4:]]
    assert turned == [15, 15, 15, 15, 0, 0]
