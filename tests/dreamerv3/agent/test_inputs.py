"""Observation keys are sorted by kind, and those that cannot work are explained."""

import elements
import numpy as np
import pytest

from dreamerv3.agent.networks.inputs import Inputs, flat_size, num_classes
from embodied.core.errors import ConfigError, SpaceError

IMAGE = elements.Space(np.uint8, (64, 64, 3))
FLAGS = {
    'reward': elements.Space(np.float32),
    'is_first': elements.Space(bool),
    'is_last': elements.Space(bool),
    'is_terminal': elements.Space(bool),
}


def test_keys_are_sorted_and_split_in_images_and_vectors():
    spaces = {
        'zebra': IMAGE,
        'vector': elements.Space(np.float32, 7),
        'camera': elements.Space(np.uint8, (64, 64, 1)),
        'count': elements.Space(np.int32, (), 0, 9),
        'table': elements.Space(np.float32, (3, 2)),
        'bytes': elements.Space(np.uint8, (4, 4), 0, 16),
        **FLAGS,
    }
    inputs = Inputs(spaces)
    assert list(inputs.images) == ['camera', 'zebra']
    assert list(inputs.vectors) == ['bytes', 'count', 'table', 'vector']
    assert inputs.channels == 4
    assert inputs.vector_size == 16 * 16 + 9 + 6 + 7


@pytest.mark.parametrize(
    ('space', 'classes', 'size'),
    [
        (elements.Space(bool), 2, 2),
        (elements.Space(bool, 3), 2, 6),
        (elements.Space(np.int32, (), 0, 5), 5, 5),
        (elements.Space(np.int32, (2,), 0, [3, 5]), 5, 10),
        (elements.Space(np.uint8, (2, 2), 0, 4), 4, 16),
        (elements.Space(np.uint8, 3), 256, 768),  # no bounds: every value of the type
    ],
)
def test_discrete_spaces_become_one_hot(space, classes, size):
    assert num_classes('key', space) == classes
    assert flat_size('key', space) == size


@pytest.mark.parametrize(
    ('spaces', 'parts'),
    [
        ({}, ['no observation', 'image or vector']),
        (FLAGS, ['no observation', 'reward', 'image or vector']),
        (
            {'volume': elements.Space(np.float32, (8, 8, 3))},
            ["'volume'", 'rank 3', 'uint8', 'Flatten'],
        ),
        (
            {'film': elements.Space(np.uint8, (4, 8, 8, 3))},
            ["'film'", 'rank 4', 'Flatten'],
        ),
        (
            {'a': IMAGE, 'b': elements.Space(np.uint8, (32, 32, 3))},
            ["'a': (64, 64, 3)", "'b': (32, 32, 3)", 'Resize'],
        ),
        (
            {'dice': elements.Space(np.int32, (), 1, 7)},
            ["'dice'", 'start at 0', 'Shift'],
        ),
        (
            {'id': elements.Space(np.int32, (), 0, 2**31 - 1)},
            ["'id'", 'classes', '10,000', 'bounds'],
        ),
        ({'id': elements.Space(np.int64)}, ["'id'", 'start at 0']),
        (
            {'id': elements.Space(np.uint64)},
            ["'id'", '18,446,744,073,709,551,616 classes', '10,000'],
        ),
        ({'none': elements.Space(np.int32, (), 0, 0)}, ["'none'", '0 classes']),
    ],
)
def test_spaces_that_cannot_work_are_explained(spaces, parts):
    with pytest.raises(SpaceError) as error:
        Inputs(spaces)
    for part in parts:
        assert part in str(error.value)


@pytest.mark.parametrize(
    ('size', 'stages', 'sides'),
    [
        ((64, 64), 4, (4, 4)),
        ((96, 96), 4, (6, 6)),
        ((48, 64), 4, (3, 4)),
        ((256, 256), 4, (16, 16)),
        ((16, 16), 2, (4, 4)),
        ((60, 60), 2, (15, 15)),
    ],
)
def test_each_stage_halves_the_image(size, stages, sides):
    inputs = Inputs({'image': elements.Space(np.uint8, (*size, 3))})
    assert inputs.smallest_map([2] * stages) == sides


@pytest.mark.parametrize(
    ('size', 'stages'),
    [((84, 84), 4), ((64, 72), 4), ((32, 32), 4), ((272, 272), 4), ((16, 16), 3)],
)
def test_images_that_do_not_fit_the_stages_are_explained(size, stages):
    inputs = Inputs({'image': elements.Space(np.uint8, (*size, 3))})
    with pytest.raises(ConfigError) as error:
        inputs.smallest_map([2] * stages)
    for part in (f'{size[0]}x{size[1]}', f'{stages} stages', 'mults', '3 to 16'):
        assert part in str(error.value)
