"""Wrappers change the rows of members as they change those of single environments."""

import functools

import elements
import jax.numpy as jnp
import numpy as np
import pytest
from driver_envs import Counter
from driving import opened, streams, without_policy
from scripted_env import Scripted
from together import Together

from embodied.core.errors import ConfigError
from embodied.envs import registry
from embodied.envs.vector.rows import to_host
from embodied.envs.vector.wrappers import HostArrays, VectorRepeat

LENGTHS = (3, 5, 7, 4)
STYLES = pytest.mark.parametrize('final', [False, True], ids=['next', 'same'])


def single(index, **options):
    return registry.adjust(Counter(index, LENGTHS[index]), **options)


def members(final, index=0, **options):
    makes = [functools.partial(Counter, i, n) for i, n in enumerate(LENGTHS)]
    return registry.adjust(Together(makes, final), **options)


@STYLES
@pytest.mark.parametrize(
    'options',
    [{'length': 4}, {'repeat': 2}, {'repeat': 3}, {'repeat': 2, 'length': 2}],
    ids=str,
)
def test_repeats_and_time_limits_are_those_of_single_environments(final, options):
    with opened([functools.partial(single, i, **options) for i in range(4)]) as driver:
        expected = streams(driver, 80)
    make = functools.partial(members, final, **options)
    with opened([make] * 4) as driver:
        got = streams(driver, 80)
    for worker in range(4):
        least = min(len(expected[worker]), len(got[worker]))
        assert least >= 12
        mine = without_policy(got[worker][:least])
        assert mine == without_policy(expected[worker][:least])


def test_time_limit_of_members_that_cannot_be_reset_begins_another_episode():
    class Stubborn(Together):
        resets_members = False

        def step(self, actions):
            reset = actions['reset'] & (self.steps == 0)
            return super().step({**actions, 'reset': reset})

    makes = [functools.partial(Counter, i, 100) for i in range(2)]
    env = registry.adjust(Stubborn(makes), length=3)
    zeros = {k: np.zeros((2, *v.shape), v.dtype) for k, v in env.act_space.items()}
    reset, rows = np.ones(2, bool), []
    for _ in range(8):
        rows.append(env.step({**zeros, 'reset': reset}))
        reset = rows[-1]['is_last']
    column = lambda key: [x[key][0].tolist() for x in rows]
    assert column('is_first') == [1, 0, 0, 0, 1, 0, 0, 0]
    assert column('is_last') == [0, 0, 0, 1, 0, 0, 0, 1]
    assert column('reward') == [0, 1, 2, 3, 0, 5, 6, 7]
    assert not any(column('is_terminal'))


def test_repeats_of_members_that_cannot_be_reset_are_refused():
    env = Together([Counter])
    env.resets_members = False
    with pytest.raises(ConfigError, match='repeat=2 needs.*reset one member'):
        VectorRepeat(env, 2)


def test_images_and_actions_change_for_all_members():
    image = elements.Space(np.uint8, (80, 80, 3))
    force = elements.Space(np.float32, 2, np.array([-2, 0]), np.array([4, 10]))
    values = {'image': np.full((80, 80, 3), 7, np.uint8)}
    make = lambda: Scripted(3, {'image': image}, {'force': force}, values)
    inner = Together([make, make, make], final=True)
    env = registry.wrap(inner, size=64)
    assert env.obs_space['image'].shape == (64, 64, 3)
    zeros = {k: np.zeros((3, *v.shape), v.dtype) for k, v in env.act_space.items()}
    env.step({**zeros, 'reset': np.ones(3, bool)})
    given = np.array([[-1, -1], [0, 0], [5, 1]], np.float32)
    for _ in range(3):
        obs = env.step({**zeros, 'force': given})
    expected = [[-2, 0], [1, 5], [4, 10]]  # clipped, and scaled to the native bounds
    got = [member.got[1]['force'].tolist() for member in inner._envs]
    assert got == expected
    assert obs['image'].shape == (3, 64, 64, 3)
    numbers, last = obs['final']
    assert numbers.tolist() == [0, 1, 2]
    assert last['image'].shape == (3, 64, 64, 3) and last['is_last'].all()


def test_arrays_of_jax_are_read_where_they_are():
    array = jnp.arange(6.0).reshape(3, 2)
    host = to_host({'x': array, 'final': (np.array([1]), {'x': array[1:2]})})
    assert isinstance(host['x'], np.ndarray)
    assert np.shares_memory(host['x'], np.asarray(array))  # no copy on the CPU
    assert host['final'][1]['x'].tolist() == [[2, 3]]


def test_tensors_of_torch_are_read_where_they_are():
    torch = pytest.importorskip('torch', reason='needs torch: pip install torch')
    tensor = torch.arange(6.0, requires_grad=True)
    host = to_host({'x': tensor, 'flag': torch.tensor([True, False])})
    assert host['x'].tolist() == list(range(6))
    assert host['flag'].dtype == bool
    assert np.shares_memory(host['x'], tensor.detach().numpy())


def test_an_environment_of_members_is_on_the_host_once():
    env = registry.adjust(Together([Counter]))
    assert isinstance(env, HostArrays)
    assert registry.adjust(env) is env
