"""Atari frames against an emulator of the tests' own."""

import pickle

import ale_py
import numpy as np
import pytest
from ale_py import roms
from PIL import Image

from embodied import envs
from embodied.core.errors import ConfigError
from embodied.envs.suites.atari import Atari

NOOP, FIRE, RIGHT = 0, 1, 2
EXACT = {'sticky': False, 'noops': 0, 'actions': 'needed'}


def emulator(game, seed=0):
    ale = ale_py.ALEInterface()
    ale.setInt('random_seed', seed)
    ale.setFloat('repeat_action_probability', 0.0)
    ale.loadROM(roms.get_rom_path(game))
    ale.reset_game()
    return ale


def shrink(screen, size):
    image = Image.fromarray(screen).resize((size, size), Image.Resampling.BILINEAR)
    return np.asarray(image).reshape(size, size, -1)


def act(env, action, reset=False):
    return env.step({'action': np.int32(action), 'reset': reset})


def play_until_the_end(env, limit=3000):
    seen = [act(env, 0, reset=True)]
    for index in range(limit):
        seen.append(act(env, 1 + index % (env.act_space['action'].high - 1)))
        if seen[-1]['is_last']:
            return seen
    raise AssertionError('no end')


@pytest.mark.parametrize('gray', [True, False])
def test_first_image_is_the_screen_and_later_ones_the_maximum_of_two(gray):
    env = Atari('breakout', seed=0, size=96, gray=gray, **EXACT)
    ale = emulator('breakout')
    look = ale.getScreenGrayscale if gray else ale.getScreenRGB
    choices = ale.getMinimalActionSet()
    first = act(env, NOOP, reset=True)
    assert first['is_first'] and first['reward'] == 0
    np.testing.assert_array_equal(first['image'], shrink(look(), 96))
    differences = 0
    for step in range(12):
        choice = (FIRE, RIGHT)[step % 2]
        frames = []
        for _ in range(4):
            ale.act(choices[choice])
            frames.append(look())
        pooled = np.maximum(frames[2], frames[3])
        differences += (pooled != frames[3]).any()
        np.testing.assert_array_equal(act(env, choice)['image'], shrink(pooled, 96))
    assert differences  # or the pooling was not tested


def test_actions_repeat_and_rewards_add_up():
    env = Atari('pong', seed=0, repeat=16, pooling=1, **EXACT)
    ale = emulator('pong')
    choices = ale.getMinimalActionSet()
    act(env, NOOP, reset=True)
    rewards = [float(act(env, RIGHT)['reward']) for _ in range(20)]
    expected = [sum(ale.act(choices[RIGHT]) for _ in range(16)) for _ in range(20)]
    assert rewards == expected
    assert sum(rewards) < 0


def test_time_limit_counts_frames_and_is_not_terminal():
    env = Atari('pong', seed=0, length=40)
    act(env, NOOP, reset=True)
    flags = [act(env, NOOP) for _ in range(10)]
    assert [bool(x['is_last']) for x in flags] == [False] * 9 + [True]
    assert not any(x['is_terminal'] for x in flags)
    assert act(env, NOOP)['is_first']


def test_end_of_the_game_is_terminal():
    seen = play_until_the_end(envs.make('atari100k_breakout', seed=1))
    assert seen[-1]['is_last'] and seen[-1]['is_terminal']
    assert not any(obs['is_terminal'] for obs in seen[:-1])


def test_a_lost_life_discounts_or_ends_the_episode_but_not_the_game():
    discount = play_until_the_end(Atari('breakout', seed=1, lives='discount', **EXACT))
    assert sum(bool(obs['is_terminal']) for obs in discount) == 5
    env = Atari('breakout', seed=1, lives='reset', **EXACT)
    lengths = [len(play_until_the_end(env)) for _ in range(2)]
    again = Atari('breakout', seed=1, lives='reset', **EXACT)
    one = play_until_the_end(again)
    assert one[-1]['is_terminal'] and len(one) == lengths[0]
    assert len(one) < len(discount) / 2
    first = act(again, NOOP)  # without an explicit reset the same game goes on
    assert first['is_first'] and again._ale.lives() == 4


@pytest.mark.parametrize(
    'game, actions, count', [('pong', 'all', 18), ('pong', 'needed', 6)]
)
def test_actions_are_all_or_the_needed_ones(game, actions, count):
    env = Atari(game, seed=0, actions=actions)
    assert env.act_space['action'].high == count


def test_presets_differ_in_size_color_and_actions():
    full, short = envs.make('atari_pong'), envs.make('atari100k_pong')
    assert full.obs_space['image'].shape == (96, 96, 1)
    assert full.act_space['action'].high == 18
    assert short.obs_space['image'].shape == (64, 64, 3)
    assert short.act_space['action'].high == 6


def test_sticky_frames_repeat_the_action_before_by_chance():
    plain, same, sticky = (
        frames_of(Atari('pong', seed=seed, sticky=sticky, noops=0, actions='needed'))
        for seed, sticky in ((3, False), (4, False), (3, True))
    )
    np.testing.assert_array_equal(plain, same)  # nothing else is random
    assert any((a != b).any() for a, b in zip(plain, sticky, strict=True))


def frames_of(env, steps=40):
    act(env, NOOP, reset=True)
    return [act(env, i % 3)['image'] for i in range(steps)]


def test_seeds_repeat_and_differ():
    one, same, other = (frames_of(Atari('pong', seed=s)) for s in (3, 3, 4))
    np.testing.assert_array_equal(one, same)
    assert any((a != b).any() for a, b in zip(one, other, strict=True))


def test_saved_state_continues_exactly():
    env, other = Atari('pong', seed=3), Atari('pong', seed=9)
    frames_of(env)
    other.load(pickle.loads(pickle.dumps(env.save())))
    for index in range(60):
        a, b = act(env, index % 6), act(other, index % 6)
        np.testing.assert_array_equal(a['image'], b['image'])
        assert a['reward'] == b['reward']


@pytest.mark.parametrize(
    'settings, words',
    [
        ({'lives': 'many'}, ['lives', 'unused', 'many']),
        ({'actions': 'few'}, ['needed', 'few']),
        ({'resize': 'big'}, ['bilinear', 'big']),
        ({'pooling': 5}, ['pooling=5', 'repeat=4']),
    ],
)
def test_settings_that_do_not_exist_are_refused(settings, words):
    with pytest.raises(ConfigError) as error:
        Atari('pong', **settings)
    assert all(word in str(error.value) for word in words)
