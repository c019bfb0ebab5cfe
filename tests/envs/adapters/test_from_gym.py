"""Gymnasium environments become ours, whatever their spaces."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from embodied.core.errors import ConfigError, MissingExtraError, SpaceError
from embodied.core.random_agent import RandomAgent
from embodied.envs.adapters.from_gym import FromGym
from embodied.envs.wrappers import CheckSpaces, UnifyDtypes

BOX = spaces.Box(-1, 1, (3,), np.float32)
IMAGE = spaces.Box(0, 255, (4, 6, 3), np.uint8)


class Sampled(gymnasium.Env):
    """Observations sampled from its space; refuses actions outside of its own."""

    def __init__(self, observation=BOX, action=None, ends=(), value=None):
        self.observation_space = observation
        self.action_space = spaces.Discrete(3) if action is None else action
        self._ends = list(ends)
        self._value = value
        self.seeds = []
        self.actions = []

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.seeds.append(seed)
        if seed is not None:
            self.observation_space.seed(seed)
        return self._observe(), {'score': 1.0}

    def step(self, action):
        assert self.action_space.contains(action), action
        self.actions.append(action)
        terminated, truncated = self._ends.pop(0) if self._ends else (False, False)
        return self._observe(), 0.5, terminated, truncated, {'score': 2.0}

    def _observe(self):
        if self._value is not None:
            return self._value
        return self.observation_space.sample()


def play(env, steps=10):
    """Random play under the same checks as in a run."""
    env = CheckSpaces(UnifyDtypes(env))
    agent = RandomAgent(env.obs_space, env.act_space, seed=0)
    observations = []
    for _ in range(steps):
        _, acts, _ = agent.policy((), {'is_first': np.zeros(1)})
        observations.append(
            env.step({'reset': False, **{k: v[0] for k, v in acts.items()}})
        )
    return observations


def task_keys(space, common):
    return {
        k: (v.dtype.name, v.shape, v.classes if v.discrete and not v.shape else None)
        for k, v in space.items()
        if k not in common
    }


COMMON = {'reward', 'is_first', 'is_last', 'is_terminal', 'reset'}
SPACES = {
    'floats': (BOX, {'x': ('float32', (3,), None)}),
    'float scalar': (
        spaces.Box(0, 1, (), np.float64),
        {'x': ('float64', (), None)},
    ),
    'discrete': (spaces.Discrete(4), {'x': ('int32', (), 4)}),
    'discrete with start': (spaces.Discrete(4, start=-2), {'x': ('int32', (), 4)}),
    'integers in a box': (
        spaces.Box(-3, 5, (2,), np.int64),
        {'x': ('int32', (2,), None)},
    ),
    'bytes that are no image': (
        spaces.Box(0, 255, (5,), np.uint8),
        {'x': ('uint8', (5,), None)},
    ),
    'equal counts': (
        spaces.MultiDiscrete([4, 4]),
        {'x': ('int32', (2,), None)},
    ),
    'unequal counts': (
        spaces.MultiDiscrete([2, 5], start=[1, -1]),
        {'x/0': ('int32', (), 2), 'x/1': ('int32', (), 5)},
    ),
    'unequal counts in two dimensions': (
        spaces.MultiDiscrete([[2, 3], [4, 4]]),
        {
            'x/0': ('int32', (), 2),
            'x/1': ('int32', (), 3),
            'x/2': ('int32', (), 4),
            'x/3': ('int32', (), 4),
        },
    ),
    'binary': (spaces.MultiBinary((2, 3)), {'x': ('int32', (2, 3), None)}),
    'dict': (
        spaces.Dict({'a': BOX, 'b': spaces.Discrete(2)}),
        {'a': ('float32', (3,), None), 'b': ('int32', (), 2)},
    ),
    'tuple': (
        spaces.Tuple([BOX, spaces.Discrete(2)]),
        {'x/0': ('float32', (3,), None), 'x/1': ('int32', (), 2)},
    ),
    'nested': (
        spaces.Dict({'a': spaces.Dict({'b': BOX}), 'c': spaces.Tuple([BOX])}),
        {'a/b': ('float32', (3,), None), 'c/0': ('float32', (3,), None)},
    ),
    'nested unequal counts': (
        spaces.Dict({'a': spaces.Tuple([spaces.MultiDiscrete([2, 3])])}),
        {'a/0/0': ('int32', (), 2), 'a/0/1': ('int32', (), 3)},
    ),
}


@pytest.mark.parametrize('name', SPACES)
def test_spaces_of_observations_are_translated(name):
    space, expected = SPACES[name]
    env = FromGym(Sampled(observation=space), obs_key='x', seed=1)
    assert task_keys(env.obs_space, COMMON) == expected
    play(env)


@pytest.mark.parametrize('name', SPACES)
def test_spaces_of_actions_are_translated_and_actions_arrive_inside(name):
    space, expected = SPACES[name]
    inner = Sampled(spaces.Box(0, 1, (1,), np.float32), space)
    env = FromGym(inner, act_key='x', seed=1)
    assert task_keys(env.act_space, COMMON) == expected
    play(env, 20)
    assert len(inner.actions) == 19


def test_integers_count_from_zero_on_our_side():
    observed = spaces.MultiDiscrete([2, 5], start=[1, -1])
    value = np.array([2, -1])
    inner = Sampled(observed, spaces.Discrete(4, start=-2), value=value)
    env = FromGym(inner)
    obs = env.step({'reset': True})
    assert (obs['vector/0'], obs['vector/1']) == (1, 0)
    env.step({'reset': False, 'action': np.int32(3)})
    assert inner.actions == [1]


@pytest.mark.parametrize(
    'space, keys',
    [
        (IMAGE, {'image'}),
        (BOX, {'vector'}),
        (spaces.Discrete(3), {'vector'}),
        (spaces.Box(0, 255, (4, 6), np.uint8), {'vector'}),
        (spaces.Tuple([BOX, BOX]), {'obs/0', 'obs/1'}),
        (spaces.Dict({'camera': IMAGE}), {'camera'}),
    ],
)
def test_keys_are_chosen_by_content(space, keys):
    env = FromGym(Sampled(space))
    assert env.obs_space.keys() == keys | COMMON - {'reset'}
    assert env.act_space.keys() == {'action', 'reset'}


def test_images_keep_all_their_values():
    image = np.full(IMAGE.shape, 255, np.uint8)
    env = CheckSpaces(FromGym(Sampled(IMAGE, value=image)))
    obs = env.step({'reset': True, 'action': np.int32(0)})
    assert obs['image'].min() == 255


@pytest.mark.parametrize(
    'space, words',
    [
        (spaces.Box(-(2**62), 2**62, (2,), np.int64), ["'x'", 'one-hot', 'floats']),
        (
            spaces.Box(np.iinfo(np.int32).min, np.iinfo(np.int32).max, (), np.int32),
            ["'x'", '-2147483648', '2147483647'],
        ),
        (spaces.Text(5), ["'x'", 'Text', 'Supported']),
        (spaces.Sequence(BOX), ["'x'", 'Sequence']),
        (spaces.Graph(BOX, BOX), ["'x'", 'Graph']),
        (spaces.Dict({'a': spaces.Tuple([spaces.Text(5)])}), ["'a/0'", 'Text']),
        (spaces.Box(0, 1, (0,), np.float32), ["'x'", 'empty']),
        (spaces.Dict({'reward': BOX}), ["['reward']", 'Rename']),
        (spaces.Dict({'is_last': BOX}), ["['is_last']", 'Rename']),
        (spaces.Dict({'action': BOX}), ["['action']", 'act_key']),
        (
            spaces.Dict({'a/0': BOX, 'a': spaces.Tuple([BOX])}),
            ["'a/0'", 'Two parts'],
        ),
    ],
)
def test_what_agents_cannot_take_is_refused(space, words):
    with pytest.raises(SpaceError) as error:
        FromGym(Sampled(space), obs_key='x')
    assert all(word in str(error.value) for word in words)


@pytest.mark.parametrize('value', [np.float64(1.5), np.int64(9), np.int64(-1)])
def test_integers_outside_of_their_space_are_not_rounded_into_it(value):
    env = FromGym(Sampled(spaces.Discrete(4), value=value))
    with pytest.raises(SpaceError, match='vector'):
        play(env, 1)


@pytest.mark.parametrize(
    'end, last, terminal',
    [
        ((True, False), True, True),
        ((False, True), True, False),
        ((True, True), True, True),
        ((False, False), False, False),
    ],
)
def test_ends_of_episodes_are_told_apart(end, last, terminal):
    env = FromGym(Sampled(ends=[(False, False), end]))
    first, middle, final, after = play(env, 4)
    assert (first['is_first'], first['reward']) == (True, 0)
    assert (middle['is_last'], middle['reward']) == (False, 0.5)
    assert (final['is_last'], final['is_terminal']) == (last, terminal)
    assert after['is_first'] == last


def test_only_the_first_reset_is_seeded():
    inner = Sampled(ends=[(True, False)] * 3)
    play(FromGym(inner, seed=7), 6)
    assert inner.seeds == [7, None, None]


def test_infos_do_not_reach_the_agent():
    for obs in play(FromGym(Sampled()), 3):
        assert obs.keys() == {'vector', 'reward', 'is_first', 'is_last', 'is_terminal'}


@pytest.mark.parametrize(
    'source, settings',
    [
        ('CartPole-v1', {}),
        ('Pendulum-v1', {'g': 9.0}),
        (lambda: gymnasium.make('CartPole-v1'), {}),
        (Sampled, {'observation': IMAGE}),
        (Sampled(), {}),
    ],
)
def test_ids_factories_classes_and_instances_are_accepted(source, settings):
    env = FromGym(source, seed=0, **settings)
    observations = play(env, 30)
    assert observations[0]['is_first']
    env.close()


def test_the_same_seed_gives_the_same_episodes():
    first, second = (play(FromGym('CartPole-v1', seed=3), 60) for _ in range(2))
    for a, b in zip(first, second, strict=True):
        assert np.array_equal(a['vector'], b['vector'])


@pytest.mark.parametrize(
    'source, settings, kind, words',
    [
        ('CartPle-v1', {}, ConfigError, ['CartPle-v1', 'CartPole-v1']),
        ('nonsense', {}, ConfigError, ['nonsense']),
        ('nopackage:Env-v1', {}, MissingExtraError, ['nopackage']),
        (Sampled(), {'size': 3}, ConfigError, ['size', 'factory']),
        (42, {}, ConfigError, ['42', 'factory']),
    ],
)
def test_sources_that_cannot_work_are_refused(source, settings, kind, words):
    with pytest.raises(kind) as error:
        FromGym(source, **settings)
    assert all(word in str(error.value) for word in words)


def test_numbers_of_infos_that_are_named_become_log_keys():
    class Scored(Sampled):
        def step(self, action):
            *rest, _ = super().step(action)
            return *rest, {'distance': 0.5, 'is_success': True, 'text': 'no'}

    env = FromGym(Scored(), log=['is_success', 'distance'])
    first, second = play(env, 2)
    keys = ('log/is_success', 'log/distance')
    assert [float(first[k]) for k in keys] == [0, 0]  # the info of a reset has none
    assert [float(second[k]) for k in keys] == [1, 0.5]


def test_a_name_that_no_info_has_is_an_error_at_the_end_of_the_first_episode():
    env = FromGym(Sampled(ends=[(False, False), (True, False)]), log=['scor'])
    with pytest.raises(ConfigError, match=r"\['scor'\].*\['score'\]"):
        play(env, 3)


def test_only_numbers_of_infos_can_be_logged():
    class Wordy(Sampled):
        def reset(self, seed=None, options=None):
            return super().reset(seed)[0], {'score': 'high'}

    with pytest.raises(SpaceError, match="'score' is a str"):
        play(FromGym(Wordy(), log=['score']), 1)


class Old(Sampled):
    """Returns what environments of gym before 0.26 return."""

    def reset(self, seed=None, options=None):
        return super().reset(seed)[0]


class OldStep(Sampled):
    def step(self, action):
        obs, reward, terminated, _, info = super().step(action)
        return obs, reward, terminated, info


class Rewarded(Sampled):
    def __init__(self, reward):
        super().__init__()
        self._reward = reward

    def step(self, action):
        obs, _, *rest = super().step(action)
        return obs, self._reward, *rest


@pytest.mark.parametrize(
    ('env', 'words'),
    [
        (Old(), 'reset.* of Old returned a ndarray.*shimmy'),
        (OldStep(), 'step.* of OldStep returned 4 values.*shimmy'),
        (Rewarded(None), 'Rewarded returned the reward None'),
        (Rewarded(np.ones(1)), r'reward of shape \(1,\).*float\(reward\[0\]\)'),
    ],
)
def test_results_of_other_interfaces_are_named(env, words):
    with pytest.raises(SpaceError, match=words):
        play(FromGym(env), 2)


class Players:
    """The parallel interface of PettingZoo."""

    possible_agents = ['one', 'two']  # noqa: RUF012

    def observation_space(self, agent):
        return BOX

    def action_space(self, agent):
        return spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        raise AssertionError('not to be played')


def gym_env():
    """Of the package that was there before Gymnasium, which need not be installed."""
    kind = type('Box', (), {'__module__': 'gym.spaces.box'})
    return type(
        'Cart', (), {'observation_space': kind(), 'action_space': 0, 'reset': 0}
    )()


@pytest.mark.parametrize(
    ('env', 'words'),
    [
        (Players(), 'Players looks like an environment of PettingZoo'),
        (gym_env(), 'Cart is an environment of the package gym.*shimmy'),
        (
            gymnasium.vector.SyncVectorEnv([Sampled, Sampled]),
            'SyncVectorEnv is a vector environment of 2',
        ),
    ],
)
def test_environments_of_other_interfaces_are_refused_by_name(env, words):
    with pytest.raises(ConfigError, match=words):
        FromGym(env)
