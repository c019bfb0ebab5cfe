"""Wrappers change one thing and pass the rest through."""

import pickle

import elements
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from scripted_env import SavedScripted, Scripted, play

import embodied
from embodied import wrappers
from embodied.core.errors import ConfigError, SpaceError
from embodied.envs.builtin.catch import Catch

RESET = {'action': np.int32(0), 'reset': True}
STEP = {'action': np.int32(0), 'reset': False}


def columns(observations, key):
    return [obs[key].tolist() for obs in observations]


def continuous(low, high, shape=(2,), dtype=np.float32):
    return Scripted(act={'action': elements.Space(dtype, shape, low, high)})


# Wrapper


def test_wrappers_forward_attributes_of_the_inner_environment():
    env = embodied.Wrapper(wrappers.CheckSpaces(Catch()))
    assert env.optimum == 1.0
    with pytest.raises(AttributeError, match='nonsense'):
        env.nonsense  # noqa: B018


@pytest.mark.parametrize('inner, saves', [(Scripted(), False), (SavedScripted(), True)])
@pytest.mark.parametrize(
    'wrap',
    [
        wrappers.Wrapper,
        wrappers.CheckSpaces,
        wrappers.UnifyDtypes,
        lambda env: wrappers.TimeLimit(env, 2),
        lambda env: wrappers.TimeLimit(wrappers.ActionRepeat(env, 2), 2),
    ],
)
def test_wrappers_can_be_saved_when_the_inner_environment_can(inner, saves, wrap):
    env = wrap(inner)
    assert hasattr(env, 'save') is saves
    assert hasattr(env, 'load') is saves


def test_wrapped_environments_can_be_pickled():
    env = pickle.loads(pickle.dumps(wrappers.TimeLimit(SavedScripted(), 2)))
    assert env.step(RESET)['is_first']


# NormalizeAction and ClipAction

BOUNDS = st.tuples(
    st.floats(-1e6, 1e6, allow_nan=False), st.floats(1e-3, 1e6, allow_nan=False)
).map(lambda pair: (pair[0], pair[0] + pair[1]))


@settings(max_examples=60, deadline=None)
@given(
    bounds=BOUNDS,
    action=st.floats(-1, 1, width=32),
    dtype=st.sampled_from([np.float32, np.float64]),
)
def test_normalized_actions_arrive_inside_of_the_bounds(bounds, action, dtype):
    low, high = dtype(bounds[0]), dtype(bounds[1])
    inner = continuous(low, high, (), dtype)
    env = wrappers.NormalizeAction(inner)
    env.step({'action': np.float32(action), 'reset': False})
    got = inner.got[-1]['action']
    assert got.dtype == dtype
    rounding = float(1e-15 * max(abs(low), abs(high))) if dtype == np.float64 else 0
    assert low - rounding <= got <= high + rounding
    middle = (float(low) + float(high)) / 2
    expected = middle + action * (float(high) - float(low)) / 2
    assert float(got) == pytest.approx(expected, abs=1e-6 * float(max(-low, high, 1)))


@pytest.mark.parametrize(
    'action, expected',
    [((-1, -1), (0, -3)), ((1, 1), (10, -1)), ((0, 0), (5, -2)), ((0.5, 0), (7.5, -2))],
)
def test_normalize_maps_the_ends_and_the_middle_exactly(action, expected):
    inner = continuous([0, -3], [10, -1])
    env = wrappers.NormalizeAction(inner)
    env.step({'action': np.float32(action), 'reset': False})
    assert inner.got[-1]['action'].tolist() == list(expected)
    space = env.act_space['action']
    assert (space.low.tolist(), space.high.tolist()) == ([-1, -1], [1, 1])


def test_normalize_leaves_directions_without_finite_bounds_alone():
    inner = continuous([0, -np.inf, 0], [4, np.inf, np.inf], (3,))
    env = wrappers.NormalizeAction(inner)
    env.step({'action': np.float32([0, 7, 9]), 'reset': False})
    assert inner.got[-1]['action'].tolist() == [2, 7, 9]
    space = env.act_space['action']
    assert space.low.tolist() == [-1, -np.inf, 0]
    assert space.high.tolist() == [1, np.inf, np.inf]


def test_clip_keeps_actions_in_the_range_and_their_dtype():
    inner = continuous(-1, 1)
    wrappers.ClipAction(inner).step({'action': np.array([-3, 0.5]), 'reset': False})
    assert inner.got[-1]['action'].tolist() == [-1, 0.5]
    assert inner.got[-1]['action'].dtype == np.float32


@pytest.mark.parametrize('wrapper', [wrappers.NormalizeAction, wrappers.ClipAction])
@pytest.mark.parametrize('key', ['action', 'missing'])
def test_wrappers_of_continuous_actions_refuse_other_keys(wrapper, key):
    with pytest.raises(SpaceError, match=key):
        wrapper(Scripted(), key)


# UnifyDtypes


@pytest.mark.parametrize(
    'dtype, expected',
    [
        (np.float64, np.float32),
        (np.float32, np.float32),
        (np.float16, np.float32),
        (np.int64, np.int32),
        (np.int8, np.int32),
        (np.uint16, np.int32),
        (np.uint8, np.uint8),
        (bool, bool),
    ],
)
def test_dtypes_are_unified_in_both_directions(dtype, expected):
    space = elements.Space(dtype, (2,), 0, 2)
    inner = Scripted(obs={'x': space}, act={'a': space}, values={'x': dtype(1)})
    inner._values['x'] = np.ones(2, dtype)
    env = wrappers.CheckSpaces(wrappers.UnifyDtypes(inner))
    obs = env.step({'a': np.ones(2, expected), 'reset': False})
    assert obs['x'].dtype == env.obs_space['x'].dtype == expected
    assert env.act_space['a'].dtype == expected
    assert inner.got[-1]['a'].dtype == dtype


def test_actions_cast_back_stay_inside_of_bounds_that_float32_rounds_up():
    inner = continuous(-0.1, 0.1, (), np.float64)
    env = wrappers.UnifyDtypes(inner)
    assert np.float64(np.float32(0.1)) > 0.1  # what this is about
    env.step({'action': np.float32(0.1), 'reset': False})
    assert inner.got[-1]['action'] == 0.1


@pytest.mark.parametrize(
    'name, space, value',
    [
        ('floats for integers', elements.Space(np.int32, (), 0, 5), np.float64(1.5)),
        ('too large for int32', elements.Space(np.int64, ()), np.int64(2**40)),
        ('booleans from integers', elements.Space(bool), np.int64(1)),
    ],
)
def test_values_that_would_lose_their_meaning_are_named_by_the_check(
    name, space, value
):
    env = wrappers.UnifyDtypes(Scripted(obs={'x': space}, values={'x': value}))
    with pytest.raises(SpaceError, match="'x'"):
        wrappers.CheckSpaces(env).step(RESET)


# CheckSpaces

FLOATS = elements.Space(np.float32, (2,), -1, 1)
NAN = float('nan')


@pytest.mark.parametrize(
    'space, value, words',
    [
        (FLOATS, np.zeros(3, np.float32), ['(2,)', '(3,)']),
        (FLOATS, np.zeros(2, np.float64), ['float32', 'float64']),
        (FLOATS, np.float32([0, 1.5]), ['from -1 to 1', 'from 0 to 1.5']),
        (FLOATS, np.float32([0, NAN]), ['NaN']),
        (elements.Space(np.float32, ()), np.float32(np.inf), ['infinity']),
        (elements.Space(np.float32, ()), np.float32(NAN), ['NaN']),
        (elements.Space(np.int32, (), 0, 4), np.int32(4), ['from 0 to 3', '4']),
        (elements.Space(np.int32, (), 0, 4), np.int32(-1), ['from 0 to 3', '-1']),
        (elements.Space(np.int32, (), 0, 4), 1.0, ['int32', 'float64']),
        (elements.Space(np.uint8, (2, 2, 3)), np.zeros((2, 2), np.uint8), ['(2, 2)']),
        (elements.Space(bool), 'yes', ['bool', 'str']),
        (elements.Space(np.float32, ()), None, ['float32', 'object']),
    ],
)
def test_observations_outside_of_their_space_are_named(space, value, words):
    env = wrappers.CheckSpaces(Scripted(obs={'x': space}, values={'x': value}))
    with pytest.raises(SpaceError) as error:
        env.step(RESET)
    for word in ["Observation 'x'", 'expected', 'got', *words]:
        assert word in str(error.value)


@pytest.mark.parametrize(
    'space, value',
    [
        (FLOATS, np.float32([-1, 1])),
        (elements.Space(np.float32, (), 0, 0.1), np.float32(0.1)),
        (elements.Space(np.float32, ()), 1),
        (elements.Space(np.float32, ()), 0.5),
        (elements.Space(np.int32, (), 0, 4), np.int32(3)),
        (elements.Space(np.uint8, (1, 1, 3)), np.full((1, 1, 3), 255, np.uint8)),
        (elements.Space(np.int32, ()), np.int32(2**31 - 1)),
        (elements.Space(np.uint8, (2,), 0, 256), np.uint8([0, 255])),
        (elements.Space(bool), True),
    ],
)
def test_observations_on_the_border_of_their_space_pass(space, value):
    env = wrappers.CheckSpaces(Scripted(obs={'x': space}, values={'x': value}))
    assert np.array_equal(env.step(RESET)['x'], value)


@pytest.mark.parametrize(
    'values, words',
    [({}, ["missing ['x']", 'not declared []']), ({'x': 0.0, 'y': 1}, ["['y']"])],
)
def test_missing_and_undeclared_observations_are_named(values, words):
    space = {'x': elements.Space(np.float32)}
    env = wrappers.CheckSpaces(Scripted(obs=space, values=values))
    with pytest.raises(SpaceError) as error:
        env.step(RESET)
    assert all(word in str(error.value) for word in words)


@pytest.mark.parametrize(
    'action, words',
    [
        ({'action': np.int32(7), 'reset': False}, ["Action 'action'", 'to 4', '7']),
        ({'reset': False}, ["missing ['action']"]),
        ({**STEP, 'jump': 1}, ["not declared ['jump']"]),
    ],
)
def test_actions_outside_of_their_space_are_named(action, words):
    env = wrappers.CheckSpaces(Scripted())
    env.step({'action': np.int32(99), 'reset': True})  # means nothing on reset
    with pytest.raises(SpaceError) as error:
        env.step(action)
    assert all(word in str(error.value) for word in words)


# ActionRepeat


def test_repeat_sums_rewards_and_stops_at_the_end():
    env = wrappers.ActionRepeat(Scripted(length=5), 2)
    observations = play(env, [STEP] * 3 + [STEP] * 2)
    # rewards 1..5 in pairs; the sixth step is a reset, which is not repeated
    assert columns(observations, 'reward') == [0, 3, 7, 5, 0, 3]
    assert columns(observations, 'is_last') == [0, 0, 0, 1, 0, 0]
    assert columns(observations, 'is_first') == [1, 0, 0, 0, 1, 0]
    assert observations[1]['reward'].dtype == np.float32


# TimeLimit


@pytest.mark.parametrize(
    'length, duration, last, terminal',
    [
        (9, 2, [0, 0, 1, 0, 0, 1], [0, 0, 0, 0, 0, 0]),
        (2, 9, [0, 0, 1, 0, 0, 1], [0, 0, 1, 0, 0, 1]),
        (2, 2, [0, 0, 1, 0, 0, 1], [0, 0, 1, 0, 0, 1]),
    ],
)
def test_time_limit_ends_episodes_without_making_them_terminal(
    length, duration, last, terminal
):
    env = wrappers.TimeLimit(Scripted(length), duration)
    observations = play(env, [STEP] * 5)
    assert columns(observations, 'is_last') == last
    assert columns(observations, 'is_terminal') == terminal
    assert columns(observations, 'is_first') == [1, 0, 0, 1, 0, 0]
    assert env.resets == 2


def test_time_limit_without_reset_goes_on_from_where_the_environment_is():
    env = wrappers.TimeLimit(Scripted(length=5), 2, reset=False)
    observations = play(env, [STEP] * 7)
    assert columns(observations, 'is_first') == [1, 0, 0, 1, 0, 0, 1, 0]
    assert columns(observations, 'is_last') == [0, 0, 1, 0, 0, 1, 0, 0]
    # The inner environment ended at its fifth step, so that it was really reset.
    assert columns(observations, 'reward') == [0, 1, 2, 3, 4, 5, 0, 1]
    assert env.resets == 2


def test_a_reset_on_request_starts_the_time_limit_anew():
    env = wrappers.TimeLimit(Scripted(length=9), 3)
    observations = play(env, [STEP, STEP, RESET, STEP, STEP, STEP])
    assert columns(observations, 'is_last') == [0, 0, 0, 0, 0, 0, 1]


@pytest.mark.parametrize('taken', range(5))
@pytest.mark.parametrize('reset', [True, False])
def test_time_limit_continues_exactly_after_load(taken, reset):
    make = lambda: wrappers.TimeLimit(SavedScripted(length=5), 2, reset)
    ours, theirs = make(), make()
    play(ours, [STEP] * taken)
    theirs.load(ours.save())
    for _ in range(6):
        assert ours.step(STEP) == theirs.step(STEP)


@pytest.mark.parametrize(
    'make',
    [
        lambda: wrappers.TimeLimit(Scripted(), 0),
        lambda: wrappers.ActionRepeat(Scripted(), 0),
        lambda: wrappers.ResizeImage(Scripted(), 0),
    ],
)
def test_impossible_settings_are_refused(make):
    with pytest.raises(ConfigError):
        make()


# ResizeImage


@pytest.mark.parametrize('size, expected', [(4, (4, 4)), ((4, 6), (4, 6))])
@pytest.mark.parametrize('channels', [1, 2, 3, 4, 5])
def test_images_of_any_number_of_channels_are_resized(size, expected, channels):
    image = np.random.default_rng(0).integers(0, 256, (8, 10, channels), np.uint8)
    obs = {
        'image': elements.Space(np.uint8, image.shape),
        'bytes': elements.Space(np.uint8, (8, 10)),
    }
    values = {'image': image, 'bytes': image[..., 0]}
    env = wrappers.CheckSpaces(
        wrappers.ResizeImage(Scripted(obs=obs, values=values), size)
    )
    resized = env.step(RESET)
    assert resized['image'].shape == (*expected, channels)
    assert resized['bytes'].shape == (8, 10)
    for channel in range(channels):
        alone = Image.fromarray(image[..., channel]).resize(
            expected[::-1], Image.Resampling.BILINEAR
        )
        assert np.array_equal(resized['image'][..., channel], np.asarray(alone))


def test_images_of_the_right_size_are_left_alone():
    image = np.zeros((4, 4, 3), np.uint8)
    space = {'image': elements.Space(np.uint8, image.shape)}
    env = wrappers.ResizeImage(Scripted(obs=space, values={'image': image}), 4)
    assert env.step(RESET)['image'] is image
