"""dm_env environments become ours."""

import sys

import dm_env
import numpy as np
import pytest
from dm_env import specs

from embodied.core.errors import ConfigError, MissingExtraError, SpaceError
from embodied.envs.adapters.from_dm import FromDM
from embodied.envs.wrappers import CheckSpaces, UnifyDtypes

FLOATS = specs.Array((2,), np.float64)
DISCRETE = specs.DiscreteArray(3)


class Fixed(dm_env.Environment):
    """Shows one observation; episodes end after two steps with `discount`."""

    def __init__(self, spec=FLOATS, value=None, action=DISCRETE, discount=0.0):
        self._spec = spec
        self._value = np.zeros(2) if value is None else value
        self._action = action
        self._discount = discount
        self._count = 0
        self.actions = []

    def observation_spec(self):
        return self._spec

    def action_spec(self):
        return self._action

    def reset(self):
        self._count = 0
        return dm_env.restart(self._value)

    def step(self, action):
        self.actions.append(action)
        self._count += 1
        if self._count == 2:
            return dm_env.TimeStep(
                dm_env.StepType.LAST, 2.0, self._discount, self._value
            )
        return dm_env.transition(1.0, self._value)


def action(value=0, reset=False):
    return {'action': np.asarray(value, np.int32), 'reset': reset}


@pytest.mark.parametrize(
    'discount, terminal', [(0.0, True), (1.0, False), (0.9, False)]
)
def test_discount_zero_at_the_end_means_terminal(discount, terminal):
    env = CheckSpaces(UnifyDtypes(FromDM(Fixed(discount=discount))))
    observations = [env.step(action()) for _ in range(4)]
    assert [bool(obs['is_first']) for obs in observations] == [True, False, False, True]
    assert [bool(obs['is_last']) for obs in observations] == [False, False, True, False]
    assert [float(obs['reward']) for obs in observations] == [0, 1, 2, 0]
    assert bool(observations[2]['is_terminal']) is terminal
    assert not any(obs['is_terminal'] for obs in observations[:2])


def test_a_reset_on_request_starts_an_episode():
    env = FromDM(Fixed())
    assert env.step(action())['is_first']
    assert not env.step(action())['is_first']
    assert env.step(action(reset=True))['is_first']


IMAGE = specs.Array((4, 4, 3), np.uint8)
PARTS = {'pose': FLOATS, 'eye': IMAGE, 'alive': specs.Array((), bool)}
PART_VALUES = {
    'pose': np.zeros(2),
    'eye': np.zeros((4, 4, 3), np.uint8),
    'alive': np.array(True),
}


@pytest.mark.parametrize(
    'spec, value, expected',
    [
        (FLOATS, np.ones(2), {'vector': ('float32', (2,))}),
        (IMAGE, PART_VALUES['eye'], {'image': ('uint8', (4, 4, 3))}),
        (
            PARTS,
            PART_VALUES,
            {
                'pose': ('float32', (2,)),
                'eye': ('uint8', (4, 4, 3)),
                'alive': ('bool', ()),
            },
        ),
        (
            {'arm': {'joint': FLOATS}},
            {'arm': {'joint': np.ones(2)}},
            {'arm/joint': ('float32', (2,))},
        ),
        (
            {'touch': specs.Array((0,), np.float64), 'arm': {'joint': FLOATS}},
            {'touch': np.zeros(0), 'arm': {'joint': np.ones(2)}},
            {'arm/joint': ('float32', (2,))},
        ),
        (
            specs.BoundedArray((2,), np.int64, [1, 1], [4, 4]),
            np.array([1, 4]),
            {'vector': ('int32', (2,))},
        ),
    ],
)
def test_observation_specs_are_translated(spec, value, expected):
    env = CheckSpaces(UnifyDtypes(FromDM(Fixed(spec, value))))
    obs = env.step(action())
    for key, (dtype, shape) in expected.items():
        assert (obs[key].dtype.name, obs[key].shape) == (dtype, shape)
    assert len(obs) == len(expected) + 4


def test_actions_arrive_in_the_form_of_their_spec():
    bounded = specs.BoundedArray((2,), np.float64, -1, 1)
    inner = Fixed(action={'push': bounded, 'mode': specs.DiscreteArray(4)})
    env = FromDM(inner)
    assert env.act_space.keys() == {'push', 'mode', 'reset'}
    assert env.act_space['mode'].classes == 4
    env.step({'reset': True})
    push = np.float32([0.5, -1])
    env.step({'reset': False, 'push': push, 'mode': np.int32(3)})
    (got,) = inner.actions
    bounded.validate(got['push'])
    assert got['push'].tolist() == [0.5, -1]
    assert got['mode'] == 3


@pytest.mark.parametrize(
    'spec, words',
    [
        (specs.Array((2,), np.int64), ['vector', 'one-hot']),
        (specs.StringArray(()), ['vector', 'StringArray']),
        ({'reward': FLOATS}, ['reward', 'Rename']),
        ({'action': FLOATS}, ['action', 'act_key']),
    ],
)
def test_what_agents_cannot_take_from_dm_is_refused(spec, words):
    with pytest.raises(SpaceError) as error:
        FromDM(Fixed(spec))
    assert all(word in str(error.value) for word in words)


def test_factories_get_the_settings_and_instances_refuse_them():
    env = FromDM(Fixed, discount=1.0)
    assert [env.step(action()) for _ in range(3)][-1]['is_last']
    with pytest.raises(ConfigError, match='discount'):
        FromDM(Fixed(), discount=1.0)
    with pytest.raises(ConfigError, match='42'):
        FromDM(42)


def test_a_missing_package_is_named_with_its_extra(monkeypatch):
    inner = Fixed()
    monkeypatch.setitem(sys.modules, 'dm_env', None)  # as if not installed
    with pytest.raises(MissingExtraError, match=r'dreamer-parallel\[dm_env\]'):
        FromDM(inner)
