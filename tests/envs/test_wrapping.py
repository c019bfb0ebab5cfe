"""What lies between an environment and the agent is told as it is."""

import elements
import gymnasium
import numpy as np
import pytest
from functional_walk import SIZE, Walk
from gymnasium import spaces

from embodied import envs
from embodied.envs import registry
from embodied.envs.adapters import own
from embodied.envs.vector.functional.for_agents import for_agents
from embodied.envs.vector.functional.members import FunctionalVectorEnv
from embodied.envs.wrapping import describe_interface


class Unbounded(gymnasium.Env):
    observation_space = spaces.Box(-1, 1, (3,), np.float32)
    action_space = spaces.Box(
        np.float32([-np.inf, -3]), np.float32([np.inf, 3]), dtype=np.float32
    )


class Pixels(Walk):
    """Shows floats and takes actions of other bounds than those of agents."""

    obs_space = {'image': elements.Space(np.float32, (32, 32, 3), 0, 1)}
    act_space = {'act': elements.Space(np.float32, SIZE, -2, 5)}

    def _show(self, state):
        return {'image': np.zeros((32, 32, 3), np.float32)}


@pytest.mark.parametrize('bound', [1, 2])
def test_bounds_that_an_option_gives_are_those_of_the_action(bound):
    env = envs.wrap(registry.adjust(own.adapt(Unbounded()), bound=bound))
    action = describe_interface(env)['actions']['action']
    assert (action['low'], action['high']) == ([-bound, -3], [bound, 3])


def test_what_changes_inside_of_compiled_environments_is_told_too():
    env = envs.wrap(FunctionalVectorEnv(for_agents(Pixels(), size=16), 2, seed=0))
    told = describe_interface(env)
    image, act = told['observations']['image'], told['actions']['act']
    assert (image['dtype'], image['shape']) == ('float32', [32, 32, 3])
    scaled, resized = image['changes']
    assert 'scaled to uint8' in scaled
    assert 'jax.image.resize' in resized and '(16, 16, 3)' in resized
    assert (act['low'], act['high']) == ([-2] * SIZE, [5] * SIZE)
