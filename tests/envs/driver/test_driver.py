"""The driver turns environments and a policy into transitions."""

import functools
import pickle
from collections import namedtuple

import elements
import numpy as np
import pytest
from driver_envs import Counter, SavedCounter
from driving import counting_policy, record, zeros

import embodied
from embodied.core.errors import ConfigError, SpaceError
from embodied.envs.builtin.catch import Catch
from embodied.envs.builtin.dummy import Dummy

BOTH = pytest.mark.parametrize('parallel', [False, True], ids=['inline', 'process'])
partial = functools.partial


@pytest.fixture
def make_driver():
    """Makes drivers that are closed after the test."""
    drivers = []

    def make(fns, parallel=False, **kwargs):
        drivers.append(embodied.Driver(fns, parallel, **kwargs))
        return drivers[-1]

    yield make
    for driver in drivers:
        driver.close()


def column(batches, key, row=0):
    return [batch[key][row].tolist() for batch in batches]


# Transitions


@BOTH
def test_transitions_hold_what_was_seen_and_what_was_chosen_after_it(
    make_driver, parallel
):
    driver = make_driver([partial(Counter, length=2)], parallel)
    batches = record(driver)
    driver.reset(zeros)
    driver(counting_policy, steps=7)
    assert column(batches, 'is_first') == [1, 0, 0, 1, 0, 0, 1]
    assert column(batches, 'is_last') == [0, 0, 1, 0, 0, 1, 0]
    assert column(batches, 'reward') == [0, 1, 2, 0, 1, 2, 0]
    # The action of the last step is a dummy, which no environment gets.
    assert column(batches, 'action') == [1, 2, 0, 4, 5, 0, 7]
    assert column(batches, 'seen') == [0, 1, 2, 0, 4, 5, 0]
    assert column(batches, 'double') == [2, 4, 6, 8, 10, 12, 14]
    assert column(batches, 'log/square') == [0, 1, 4, 0, 1, 4, 0]
    assert 'reset' not in batches[0]


@BOTH
def test_rows_belong_to_their_environments(make_driver, parallel):
    lengths = [1, 2, 3]
    driver = make_driver(
        [partial(Counter, name=n, length=length) for n, length in enumerate(lengths)],
        parallel,
    )
    batches = record(driver)
    driver.reset(zeros)
    driver(counting_policy, steps=21)
    assert driver.length == 3 and len(batches) == 7
    assert all(batch['name'].tolist() == [0, 1, 2] for batch in batches)
    for row, length in enumerate(lengths):
        period = [*range(length + 1)] * 7
        assert column(batches, 'count', row) == [[c, c] for c in period[:7]]
    dtypes = {k: v.dtype.name for k, v in batches[0].items()}
    assert dtypes['log/square'] == 'float32'  # the environment gives a Python float
    assert dtypes['action'] == 'int32'


def test_the_policy_sees_everything_but_logs(make_driver):
    seen = []

    def policy(carry, obs):
        seen.append(obs)
        return carry, {'action': np.zeros(2, np.int32)}, {}

    driver = make_driver([Counter, Counter])
    driver(policy, steps=2)
    common = {'reward', 'is_first', 'is_last', 'is_terminal'}
    assert seen[0].keys() == {'name', 'count', 'seen'} | common
    assert seen[0]['count'].shape == (2, 2)


def test_callbacks_get_batches_first_and_then_single_steps(make_driver):
    calls = []
    driver = make_driver([Counter, Counter], mode='eval')

    def policy(carry, obs, mode):
        return carry, {'action': np.arange(2, dtype=np.int32)}, {'log/mode': [mode] * 2}

    driver.on_step(lambda tran, index, mode: calls.append((index, mode, tran)))
    driver.on_batch(lambda trans, indices: calls.append((indices.tolist(), trans)))
    driver(policy, steps=2)
    (indices, trans), *singles = calls
    assert indices == [0, 1]
    assert [(index, mode) for index, mode, _ in singles] == [(0, 'eval'), (1, 'eval')]
    for index, _, tran in singles:
        assert tran.keys() == trans.keys()
        assert all(np.array_equal(tran[k], trans[k][index]) for k in tran)
        assert tran['action'] == index and tran['log/mode'] == 'eval'


@pytest.mark.parametrize(
    'steps, episodes, expected',
    [(0, 0, 0), (1, 0, 1), (2, 0, 1), (3, 0, 2), (0, 1, 4), (0, 3, 8), (5, 2, 4)],
)
def test_calls_last_until_both_counts_are_reached(
    make_driver, steps, episodes, expected
):
    # Two environments with episodes of four observations each.
    driver = make_driver([Counter, Counter])
    batches = record(driver)
    driver.reset(zeros)
    driver(counting_policy, steps, episodes)
    assert len(batches) == expected


def test_reset_starts_new_episodes_and_carries(make_driver):
    driver = make_driver([partial(Counter, length=9)])
    batches = record(driver)
    driver.reset(zeros)
    driver(counting_policy, steps=3)
    driver.reset(zeros)
    driver(counting_policy, steps=2)
    assert column(batches, 'is_first') == [1, 0, 0, 1, 0]
    assert column(batches, 'action') == [1, 2, 3, 1, 2]


def test_processes_give_the_same_transitions_as_inline(make_driver):
    results = []
    for parallel in (False, True):
        fns = [partial(Catch, 8, 8, seed) for seed in range(3)]
        driver = make_driver(fns, parallel)
        agent = embodied.RandomAgent(driver.obs_space, driver.act_space, seed=0)
        results.append(record(driver))
        driver.reset(agent.init_policy)
        driver(agent.policy, steps=60)
    assert_same(*results)


def assert_same(first, second):
    assert len(first) == len(second)
    for a, b in zip(first, second, strict=True):
        assert a.keys() == b.keys()
        assert all(np.array_equal(a[k], b[k]) for k in a)


# Interrupted steps


@pytest.mark.parametrize('where', ['policy', 'on_step', 'on_batch'])
@BOTH
def test_an_interrupted_step_is_followed_by_new_episodes(make_driver, where, parallel):
    driver = make_driver([partial(Counter, length=9)] * 2, parallel)
    fail = []

    def failing(name):
        def check(*_):
            if name == where and fail and fail.pop():
                raise KeyboardInterrupt

        return check

    def policy(carry, obs):
        failing('policy')()
        return counting_policy(carry, obs)

    driver.on_step(failing('on_step'))
    driver.on_batch(failing('on_batch'))
    batches = record(driver)
    driver.reset(zeros)
    driver(policy, steps=4)
    fail.append(True)
    with pytest.raises(KeyboardInterrupt):
        driver(policy, steps=2)
    batches.clear()
    driver(policy, steps=4)
    assert column(batches, 'is_first') == [1, 0]
    assert column(batches, 'count', row=1) == [[0, 0], [1, 1]]


def test_a_state_saved_in_the_middle_of_a_step_starts_new_episodes(make_driver):
    driver = make_driver([SavedCounter])
    states = []
    driver.on_step(lambda tran, index: states.append(driver.save()))
    driver.reset(zeros)
    driver(counting_policy, steps=2)
    driver.load(states[-1])
    batches = record(driver)
    driver(counting_policy, steps=1)
    assert column(batches, 'is_first') == [1]


# Saving


@pytest.mark.parametrize('before', range(6))
@pytest.mark.parametrize('saved, loaded', [(False, False), (True, False)])
def test_a_loaded_driver_continues_exactly(make_driver, before, saved, loaded):
    """`saved` and `loaded`: whether each driver uses processes."""

    def make(parallel):
        fns = [partial(SavedCounter, n, length=n + 2) for n in range(3)]
        driver = make_driver(fns, parallel)
        return driver, record(driver)

    driver, _ = make(saved)
    driver.reset(zeros)
    driver(counting_policy, steps=3 * before)
    state = pickle.dumps(driver.save())
    ours = record(driver)
    driver(counting_policy, steps=24)
    resumed, theirs = make(loaded)
    resumed.reset(zeros)
    resumed.load(pickle.loads(state))
    resumed(counting_policy, steps=24)
    assert_same(ours, theirs)


@BOTH
def test_environments_that_cannot_be_saved_start_new_episodes(make_driver, parallel):
    def make():
        fns = [partial(cls, length=9) for cls in (SavedCounter, Counter)]
        driver = make_driver(fns, parallel)
        driver.reset(zeros)
        return driver

    driver = make()
    driver(counting_policy, steps=6)
    state = driver.save()
    resumed = make()
    batches = record(resumed)
    resumed.load(state)
    resumed(counting_policy, steps=4)
    assert column(batches, 'count', row=0) == [[3, 3], [4, 4]]
    assert column(batches, 'count', row=1) == [[0, 0], [1, 1]]
    assert column(batches, 'is_first', row=1) == [True, False]
    assert column(batches, 'action', row=0) == [4, 5]  # the carry continues


def test_random_numbers_of_environments_continue_too(make_driver):
    fns = [partial(Catch, 8, 8, seed) for seed in range(2)]
    driver = make_driver(fns)
    agent = embodied.RandomAgent(driver.obs_space, driver.act_space, seed=0)
    driver(agent.policy, steps=20)
    agent_state, driver_state = agent.save(), driver.save()
    ours = record(driver)
    driver(agent.policy, steps=100)
    resumed = make_driver([partial(Catch, 8, 8, seed=9)] * 2)
    agent.load(agent_state)
    resumed.load(driver_state)
    theirs = record(resumed)
    resumed(agent.policy, steps=100)
    assert_same(ours, theirs)


def test_another_number_of_environments_starts_new_episodes(make_driver):
    driver = make_driver([SavedCounter] * 2)
    driver.reset(zeros)
    driver(counting_policy, steps=4)
    larger = make_driver([SavedCounter] * 3)
    larger.reset(zeros)
    larger.load(driver.save())
    batches = record(larger)
    larger(counting_policy, steps=3)
    assert batches[0]['is_first'].all()
    assert batches[0]['action'].tolist() == [1, 1, 1]


Pair = namedtuple('Pair', 'left right')


def test_carries_of_any_form_are_saved_as_numpy(make_driver):
    import jax.numpy as jnp

    carry = {
        'array': np.arange(2),
        'device': jnp.arange(2),
        'half': jnp.ones(2, jnp.bfloat16),
        'rows': [np.ones(3), None],
        'pair': Pair(jnp.zeros(2), ()),
    }
    driver = make_driver([SavedCounter] * 2)
    driver.reset(lambda count: carry)
    saved = driver.save()['carry']
    assert type(saved['device']) is type(saved['half']) is np.ndarray
    assert saved['half'].dtype == jnp.bfloat16
    assert type(saved['rows']) is list and saved['rows'][1] is None
    assert type(saved['pair']) is Pair and type(saved['pair'].left) is np.ndarray
    assert saved['pair'].right == ()
    carry['array'][:] = 9
    assert saved['array'].tolist() == [0, 1]


# Mistakes


class Clashing(Counter):
    @property
    def act_space(self):
        return {**super().act_space, 'count': elements.Space(np.float32)}


class WithoutFlags(Counter):
    @property
    def obs_space(self):
        return {'name': super().obs_space['name']}


class WrongShape(Counter):
    def step(self, action):
        return {**super().step(action), 'count': np.zeros(3, np.float32)}


class WrongKind(Counter):
    def step(self, action):
        return {**super().step(action), 'name': 1.5}


class Missing(Counter):
    def step(self, action):
        return {k: v for k, v in super().step(action).items() if k != 'name'}


@pytest.mark.parametrize(
    'fns, kind, words',
    [
        ([], ConfigError, ['at least one']),
        ([Clashing], SpaceError, ["['count']", 'side by side']),
        ([WithoutFlags], SpaceError, ['reward', 'is_first']),
        ([Counter, partial(Dummy, 'disc')], SpaceError, ['1 differ', "'image'"]),
        (
            [partial(Dummy, 'disc', length=5), partial(Dummy, 'disc', length=6)],
            SpaceError,
            ["1 differ from those of 0 in ['count']"],
        ),
    ],
)
def test_environments_that_do_not_fit_together_are_refused(fns, kind, words):
    with pytest.raises(kind) as error:
        embodied.Driver(fns, parallel=False)
    assert all(word in str(error.value) for word in words)


@pytest.mark.parametrize(
    'env, words',
    [
        (WrongShape, ["'count'", '(2,)', '(3,)']),
        (WrongKind, ["'name'", 'int32', 'float64']),
        (Missing, ["'name'", 'int32', 'nothing']),
    ],
)
@pytest.mark.parametrize('others', [0, 1])
def test_observations_that_cannot_be_stacked_are_named(make_driver, env, words, others):
    driver = make_driver([Counter] * others + [env])
    driver.reset(zeros)
    with pytest.raises(SpaceError) as error:
        driver(counting_policy, steps=1)
    assert all(word in str(error.value) for word in words)


@pytest.mark.parametrize(
    'acts',
    [
        {},
        {'action': np.zeros(3, np.int32)},
        {'action': np.zeros((2, 1), np.int32)},
        {'action': np.zeros(2, np.int32), 'jump': np.zeros(2)},
    ],
)
def test_actions_of_the_wrong_form_are_refused(make_driver, acts):
    driver = make_driver([Counter, Counter])
    with pytest.raises(SpaceError, match=r"\{'action': \(2,\)\}"):
        driver(lambda carry, obs: (carry, acts, {}), steps=1)
