"""Suites with their real packages: episode ends, time limits, action repeat, seeds."""

import subprocess
import sys

import numpy as np
import pytest
from python_versions import needs_dm_control, needs_memory_maze

from embodied import envs
from embodied.core.errors import ConfigError, MissingExtraError
from embodied.core.random_agent import RandomAgent
from embodied.envs import extras
from embodied.envs.suites import rendering


def rollout(env, steps, seed=0):
    agent = RandomAgent(env.obs_space, env.act_space, seed)
    seen = []
    for _ in range(steps):
        _, acts, _ = agent.policy((), {'is_first': np.zeros(1)})
        seen.append(env.step({**{k: v[0] for k, v in acts.items()}, 'reset': False}))
    return seen


def act(env, action, reset=False):
    action = np.asarray(action, env.act_space['action'].dtype)
    return env.step({'action': action, 'reset': reset})


@pytest.mark.parametrize(
    'task, module, extra',
    [
        ('atari_pong', 'ale_py', 'atari'),
        ('atari100k_pong', 'ale_py', 'atari'),
        ('dmc_walker_walk', 'dm_control', 'dmc'),
        ('crafter_reward', 'crafter', 'crafter'),
        ('minigrid_Empty-5x5-v0', 'minigrid', 'minigrid'),
        ('memorymaze_9x9', 'memory_maze', 'memorymaze'),
        ('bsuite_catch/0', 'bsuite', 'bsuite'),
        ('procgen_coinrun', 'procgen', 'procgen'),
        ('dmlab_rooms_watermaze', 'deepmind_lab', 'dmlab-and-minecraft'),
        ('minecraft_diamond', 'minerl', 'dmlab-and-minecraft'),
        ('envpool:Pong-v5', 'envpool', 'envpool'),
        ('gymnax:CartPole-v1', 'gymnax', 'gymnax'),
        ('craftax:symbolic', 'craftax', 'craftax'),
        ('navix:Empty-5x5-v0', 'navix', 'navix'),
        ('brax:ant', 'brax', 'brax'),
        ('playground:WalkerWalk', 'mujoco_playground', 'playground'),
    ],
)
def test_missing_packages_are_named_with_where_to_get_them(
    task, module, extra, monkeypatch
):
    monkeypatch.setitem(sys.modules, module, None)
    place = rf'(\[{extra}\]|your_environment.md#{extra})'
    with pytest.raises(MissingExtraError, match=rf'{module}.*{place}'):
        envs.make(task)


def test_packages_that_a_newer_python_cannot_install_name_the_one_that_can():
    assert 'dreamer-parallel[dmc]' in extras.advice('dmc', (3, 12))
    assert 'Python 3.12' not in extras.advice('dmc', (3, 12))
    for extra in ('dmc', 'memorymaze'):
        text = extras.advice(extra, (3, 13))
        assert 'labmaze' in text and 'Python 3.13: use Python 3.12' in text
    assert extras.advice('crafter', (3, 13)) == extras.advice('crafter', (3, 12))


@pytest.mark.parametrize(
    'task, steps',
    [
        ('atari100k_pong', 30),
        pytest.param('dmc_cartpole_swingup', 30, marks=needs_dm_control),
        pytest.param('dmc_ball_in_cup_catch', 30, marks=needs_dm_control),
        ('crafter_reward', 30),
        ('minigrid_DoorKey-5x5-v0', 30),
        ('bsuite_cartpole/0', 30),
        ('bsuite_deep_sea_stochastic/0', 60),
    ],
)
def test_equal_seeds_give_equal_episodes(task, steps):
    one, two = (rollout(envs.make(task, seed=2**32 - 1), steps) for _ in range(2))
    for a, b in zip(one, two, strict=True):
        for key in a:
            np.testing.assert_array_equal(a[key], b[key], key)


def test_every_environment_of_a_suite_has_another_seed():
    images = [
        act(envs.make('crafter_reward', seed=s), 0, True)['image'] for s in (1, 2)
    ]
    assert (images[0] != images[1]).any()


# DMC


@needs_dm_control
def test_control_tasks_end_by_time_limit_and_sum_repeated_rewards():
    env = envs.make('dmc_cartpole_swingup', seed=0, repeat=100)
    single = envs.make('dmc_cartpole_swingup', seed=0)
    act(env, [0.0], True), act(single, [0.0], True)
    obs = act(env, [0.5])
    rewards = [act(single, [0.5])['reward'] for _ in range(100)]
    assert obs['reward'] == pytest.approx(sum(rewards), rel=1e-5)
    later = [act(env, [0.0]) for _ in range(9)]
    assert [bool(x['is_last']) for x in later] == [False] * 8 + [True]
    assert not later[-1]['is_terminal']


def test_control_tasks_need_something_to_observe():
    with pytest.raises(ConfigError, match='env.dmc.image'):
        envs.make('dmc_walker_walk', proprio=False)


def run_apart(code, **environ):
    """MuJoCo decides once per process what draws."""
    return subprocess.run(
        [sys.executable, '-c', code], capture_output=True, text=True, timeout=200
    )


@needs_dm_control
def test_tasks_without_images_never_touch_a_renderer():
    code = (
        'import os, sys, embodied\n'
        'env = embodied.envs.make("dmc_walker_walk", seed=0)\n'
        'env.step({"reset": True, "action": [0.0] * 6})\n'
        'assert "MUJOCO_GL" not in os.environ\n'
        'bad = [m for m in sys.modules if m.split(".")[0] in ("OpenGL", "glfw")]\n'
        'assert not bad, bad\n'
        'try:\n'
        '    embodied.envs.make("dmc_walker_walk", image=True)\n'
        'except Exception as error:\n'
        '    print(type(error).__name__, error)\n'
    )
    done = run_apart(code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith('ConfigError') and 'MUJOCO_GL' in done.stdout


def test_without_a_library_that_draws_the_way_out_is_told():
    with pytest.raises(ConfigError, match=r'libegl1.*--env\.dmc\.image False'):
        rendering.choose(['nothing'])


@pytest.fixture(scope='module')
def drawing():
    try:
        rendering.choose()
    except ConfigError:
        pytest.skip('drawing needs EGL or OSMesa: apt-get install libegl1 libosmesa6')


@needs_memory_maze
@needs_dm_control
def test_images_are_drawn_by_what_was_chosen(drawing):
    code = (
        'import embodied, numpy as np\n'
        'env = embodied.envs.make("dmc_quadruped_walk", 0, image=True, proprio=False)\n'
        'assert env.obs_space.keys() == {\n'
        '    "image", "reward", "is_first", "is_last", "is_terminal"}\n'
        'obs = env.step({"reset": True, "action": np.zeros(12, np.float32)})\n'
        'assert obs["image"].shape == (64, 64, 3) and obs["image"].std() > 1\n'
        'embodied.envs.make("memorymaze_9x9", 2).close()  # one of several\n'
        'maze = embodied.envs.make("memorymaze_9x9", 3)\n'
        'inner = maze\n'
        'while not hasattr(inner, "dm_env"): inner = inner.env\n'
        'inner = inner.dm_env\n'
        'while hasattr(inner, "env"): inner = inner.env\n'
        'inner._time_limit = 2.0 - 1e-3  # of 250; 4 actions per second\n'
        'seen = [maze.step({"reset": i == 0, "action": 1}) for i in range(9)]\n'
        'assert seen[0]["image"].std() > 1 and seen[0]["is_first"]\n'
        'assert [bool(x["is_last"]) for x in seen] == [False] * 8 + [True]\n'
        'assert not seen[-1]["is_terminal"]\n'
        'assert maze.step({"reset": False, "action": 1})["is_first"]\n'
    )
    done = run_apart(code)
    assert done.returncode == 0, done.stderr


@pytest.mark.long
@needs_memory_maze
@pytest.mark.parametrize('name', ['9x9', '15x15'])
def test_mazes_have_no_faults(drawing, name):
    code = (
        'from dreamerv3.commands import check_env\n'
        f'report = check_env.check_task("memorymaze_{name}", 40, 60)\n'
        # Speed depends on what draws; all else has to be right.
        'assert not [x for x in report.findings if x.severity == "error"], report\n'
    )
    done = run_apart(code)
    assert done.returncode == 0, done.stderr


# Gymnasium


def test_classics_end_by_falling_or_by_time_limit():
    env = envs.make('gym:CartPole-v1', seed=0)
    act(env, 0, True)
    seen = [act(env, 1)]
    while not seen[-1]['is_last']:
        seen.append(act(env, 1))
    assert seen[-1]['is_terminal'] and len(seen) < 20
    env = envs.make('gym:MountainCar-v0', seed=0, repeat=50)
    assert act(env, 0, True)['reward'] == 0
    seen = [act(env, 1) for _ in range(4)]  # of the 200 steps that it lasts
    assert [float(x['reward']) for x in seen] == [-50] * 4
    assert [bool(x['is_last']) for x in seen] == [False] * 3 + [True]
    assert not seen[-1]['is_terminal'] and act(env, 1)['is_first']


# Crafter


def test_crafter_ends_by_time_limit_or_death():
    env = envs.make('crafter_reward', seed=0, length=3)
    act(env, 0, True)
    seen = [act(env, 0) for _ in range(3)]
    assert [bool(x['is_last']) for x in seen] == [False, False, True]
    assert not seen[-1]['is_terminal']
    act(env, 0)
    env._env._player.health = 0
    dead = act(env, 0)
    assert dead['is_last'] and dead['is_terminal']


def test_crafter_logs_which_achievements_an_episode_has_unlocked():
    env = envs.make('crafter_reward', seed=0)
    keys = [k for k in env.obs_space if k.startswith('log/achievement_')]
    assert len(keys) == 22
    assert act(env, 0, True)['log/achievements'] == 0
    env._env._player.inventory['sapling'] = 1
    env._env._player.achievements['collect_sapling'] = 2
    obs = act(env, 0)
    assert obs['log/achievement_collect_sapling'] == 1
    assert obs['log/achievements'] == 1
    assert obs['reward'] == 1
    assert act(env, 0)['reward'] == 0


# MiniGrid


def test_minigrid_ends_at_the_goal_or_by_time_limit():
    left, right, forward = 0, 1, 2
    env = envs.make('minigrid_Empty-5x5-v0', seed=0)
    act(env, 0, True)
    seen = [act(env, a) for a in (forward, forward, right, forward, forward)]
    assert seen[-1]['is_terminal'] and seen[-1]['reward'] > 0.9
    assert not any(x['is_last'] for x in seen[:-1])
    assert act(env, left)['is_first']
    late = [act(env, left) for _ in range(100)]
    assert [bool(x['is_last']) for x in late] == [False] * 99 + [True]
    assert not late[-1]['is_terminal']
    assert late[0]['direction'] == 3 and late[0]['image'].shape == (64, 64, 3)


# bsuite


def test_bsuite_catch_ends_terminally_after_nine_steps():
    env = envs.make('bsuite_catch/0', seed=0)
    act(env, 1, True)
    seen = [act(env, 1) for _ in range(9)]
    assert [bool(x['is_last']) for x in seen] == [False] * 8 + [True]
    assert seen[-1]['is_terminal'] and abs(seen[-1]['reward']) == 1


def test_bsuite_names_its_experiments():
    with pytest.raises(ConfigError, match=r"'cach/0'.*catch, "):
        envs.make('bsuite_cach/0')
