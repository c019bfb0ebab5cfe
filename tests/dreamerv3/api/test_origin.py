import json

import elements
import numpy as np
import pytest

from dreamerv3 import config
from dreamerv3.api.origin import Origin

SPACES = {
    'image': elements.Space(np.uint8, (16, 16, 3)),
    'vector': elements.Space(np.float32, (2, 3)),
    'bounded': elements.Space(np.float32, 2, -1, np.array([1.0, np.inf])),
    'number': elements.Space(np.int32, (), 0, 5),
    'wide': elements.Space(np.int64),
    'multi': elements.Space(np.int32, 2, 0, np.array([2, 3])),
    'flag': elements.Space(bool, 3),
}


@pytest.mark.parametrize('name', SPACES)
def test_spaces_survive_the_way_through_json(name):
    space = SPACES[name]
    options, _ = config.resolve(['--configs', 'tiny'])
    saved = Origin(options, {name: space}, {}).save()
    text = json.dumps(saved['obs_space'], allow_nan=False)
    found = Origin.load(saved | {'obs_space': json.loads(text)})
    assert found.config == options
    (again,) = found.obs_space.values()
    assert (again.dtype, again.shape) == (space.dtype, space.shape)
    np.testing.assert_array_equal(again.low, space.low)
    np.testing.assert_array_equal(again.high, space.high)
