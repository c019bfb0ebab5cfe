"""Odd spaces become those that agents take; odd values are not hidden by it."""

import elements
import numpy as np
import pytest

from embodied import envs
from embodied.core.errors import ConfigError, SpaceError
from embodied.envs.conversion import BoundAction, ConvertArrays
from embodied.envs.wrappers import CheckSpaces, UnifyDtypes

FLAG = elements.Space(bool)
RAMP = np.arange(2 * 3 * 4, dtype=np.float32).reshape(2, 3, 4)


class Showing:
    """Shows one value of one space; remembers the last action."""

    def __init__(self, space, value, action=None):
        self.obs_space = {
            'x': space,
            'reward': elements.Space(np.float32),
            **dict.fromkeys(('is_first', 'is_last', 'is_terminal'), FLAG),
        }
        action = action or elements.Space(np.float32, (2,), -1, 1)
        self.act_space = {'action': action, 'reset': FLAG}
        self.value = value

    def step(self, action):
        self.action = action
        return {
            'x': self.value,
            'reward': np.float32(0),
            'is_first': np.bool_(action['reset']),
            'is_last': np.bool_(False),
            'is_terminal': np.bool_(False),
        }


def shown(space, value):
    env = CheckSpaces(UnifyDtypes(ConvertArrays(Showing(space, value))))
    action = {'action': np.zeros(2, np.float32), 'reset': np.bool_(True)}
    return env.obs_space['x'], env.step(action)['x']


def test_an_image_with_its_channels_first_is_transposed():
    value = np.arange(3 * 4 * 5, dtype=np.uint8).reshape(3, 4, 5)
    space, image = shown(elements.Space(np.uint8, (3, 4, 5)), value)
    assert space.shape == image.shape == (4, 5, 3)
    for channel in range(3):
        np.testing.assert_array_equal(image[..., channel], value[channel])


@pytest.mark.parametrize(('low', 'high'), [(0, 1), (-1, 1), (0, 255)])
def test_a_float_image_is_scaled_from_its_bounds(low, high):
    value = np.full((4, 5, 3), low, np.float32)
    value[0], value[1] = high, (low + high) / 2
    space, image = shown(elements.Space(np.float32, (4, 5, 3), low, high), value)
    assert (space.dtype, image.dtype) == (np.uint8, np.uint8)
    assert (image[0] == 255).all() and (image[2:] == 0).all()
    assert (image[1] == 128).all()  # 127.5, rounded to the even neighbor


@pytest.mark.parametrize(
    'space',
    [
        elements.Space(np.float32, (2, 3, 4), -np.inf, np.inf),  # a picture of what?
        elements.Space(np.float32, (2, 3, 5), 0, 100),
        elements.Space(np.int32, (2, 3, 4), 0, 24),
    ],
)
def test_other_arrays_are_flattened_with_their_bounds(space):
    value = np.arange(np.prod(space.shape)).reshape(space.shape).astype(space.dtype)
    flat, got = shown(space, value)
    assert flat.shape == got.shape == value.reshape(-1).shape
    np.testing.assert_array_equal(got, value.reshape(-1))
    np.testing.assert_array_equal(flat.low, space.low.reshape(-1))


def test_vectors_and_plain_images_stay_as_they_are():
    for space, value in [
        (elements.Space(np.float32, (3,), -1, 1), np.ones(3, np.float32)),
        (elements.Space(np.uint8, (4, 5, 3)), np.ones((4, 5, 3), np.uint8)),
    ]:
        same, got = shown(space, value)
        assert same.shape == space.shape
        assert got is value


@pytest.mark.parametrize(
    ('value', 'words'),
    [
        (np.full((4, 5, 3), np.nan, np.float32), 'NaN'),
        (np.full((4, 5, 3), 200, np.float32), 'from 200 to 200'),
        (np.zeros((5, 4, 3), np.float32), r'shape \(5, 4, 3\)'),
    ],
)
def test_values_outside_of_the_declared_space_are_named_not_clipped(value, words):
    with pytest.raises(SpaceError, match=words):
        shown(elements.Space(np.float32, (4, 5, 3), 0, 1), value)


def test_only_directions_without_bounds_get_the_bound():
    action = elements.Space(np.float32, (3,), [-np.inf, -2, 0], [np.inf, 2, np.inf])
    env = envs.wrap(
        BoundAction(Showing(elements.Space(np.float32, (1,)), np.ones(1), action), 4)
    )
    assert env.act_space['action'].low.tolist() == [-1, -1, -1]
    chosen = {'action': np.ones(3, np.float32), 'reset': np.bool_(False)}
    env.step(chosen)
    inner = env
    while not isinstance(inner, Showing):
        inner = inner.env
    assert inner.action['action'].tolist() == [4, 2, 4]


@pytest.mark.parametrize('bound', [-1, np.inf, np.nan])
def test_a_bound_that_bounds_nothing_is_refused(bound):
    space = elements.Space(np.float32, (1,))
    with pytest.raises(ConfigError, match='above 0'):
        BoundAction(Showing(space, np.ones(1)), bound)
