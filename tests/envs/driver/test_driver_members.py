"""The driver plays members of vector environments as it plays single environments."""

import functools

import numpy as np
import pytest
from driver_envs import Counter
from driving import (
    counting_policy,
    opened,
    record,
    streams,
    without_policy,
    zeros,
)
from together import Together

import embodied
from embodied.core.errors import ConfigError, SpaceError
from embodied.envs.wrappers import CheckSpaces

BOTH = pytest.mark.parametrize('parallel', [False, True], ids=['inline', 'process'])
STYLES = pytest.mark.parametrize('final', [False, True], ids=['next', 'same'])
LENGTHS = (1, 2, 3, 2)


def single(index):
    return functools.partial(Counter, index, LENGTHS[index])


def make_members(first, count, final):
    return Together([single(first + i) for i in range(count)], final)


def vector(index, count=2, final=False):
    return functools.partial(make_members, index, min(count, 4 - index), final)


@BOTH
@STYLES
@pytest.mark.parametrize('count', [4, 2, 3])
def test_transitions_are_those_of_single_environments(parallel, final, count):
    with opened([single(i) for i in range(4)]) as driver:
        expected = streams(driver, 40)
    makes = [vector(i, count, final) for i in range(4)]
    with opened(makes, parallel) as driver:
        assert driver.length == 4
        assert len(driver._handles) == (1 if count == 4 else 2)
        got = streams(driver, 40)
    for worker in range(4):
        least = min(len(expected[worker]), len(got[worker]))
        assert least >= 8
        if final:  # The policy's carry also counts calls for last rows of others.
            mine, theirs = map(without_policy, (got[worker], expected[worker]))
        else:
            mine, theirs = got[worker], expected[worker]
        assert mine[:least] == theirs[:least]


def test_every_action_but_the_last_of_an_episode_reaches_its_member():
    with opened([vector(i, 4, True) for i in range(4)]) as driver:
        for trans in streams(driver, 60).values():
            for now, later in zip(trans[:-1], trans[1:], strict=True):
                if now['is_last']:
                    assert now['action'] == 0 and later['is_first']
                else:
                    assert later['seen'] == now['action'] > 0


def test_last_rows_count_as_steps_and_as_episodes():
    with opened([vector(i, 4, True) for i in range(4)]) as driver:
        batches = record(driver)
        driver.reset(zeros)
        driver(counting_policy, episodes=4)
    rows = sum(len(batch['reward']) for batch in batches)
    assert sum(int(batch['is_last'].sum()) for batch in batches) >= 4
    assert [len(batch['reward']) for batch in batches][:3] == [4, 1, 4]
    assert rows > 8


@BOTH
def test_a_number_that_is_no_multiple_is_refused_with_both(parallel):
    make = functools.partial(make_members, 0, 3, False)
    with pytest.raises(ConfigError, match='4 environments.*3 members.*multiple of 3'):
        embodied.Driver([make] * 4, parallel)
    with opened([make] * 4, parallel, fits=True) as driver:
        assert driver.length == 3
    with opened([make], parallel, fits=True) as driver:
        assert driver.length == 3


def test_single_and_vector_environments_do_not_mix():
    with pytest.raises(SpaceError, match=r'vector environments or none.*\[2, 0\]'):
        embodied.Driver([vector(0), single(1), single(2)])


def test_driver_continues_with_the_same_members():
    makes = [vector(i) for i in range(4)]
    with opened(makes) as driver:
        driver.reset(zeros)
        driver(counting_policy, steps=8)
        saved = driver.save()
    with opened(makes) as driver:
        driver.reset(zeros)
        driver.load(saved)
        batches = record(driver)
        driver(counting_policy, steps=4)
    assert batches[0]['is_first'].all()  # Their state was not saved.
    assert batches[0]['double'].tolist() == [6] * 4  # The policy's was.


class Bad(Together):
    """Gives rows that do not fit, in the second step."""

    def __init__(self, fault):
        super().__init__([single(i) for i in range(4)])
        self._fault = fault

    def step(self, actions):
        obs = super().step(actions)
        if self.steps == 2:
            obs = {**obs, **self._fault(obs)}
        return obs


FAULTS = {
    'rows': (
        lambda obs: {'count': obs['count'][:3]},
        ["'count'", '4 rows', 'float32', '(3, 2)'],
    ),
    'kind': (
        lambda obs: {'name': obs['name'] + 0.5},
        ["'name'", '4 rows of int32', 'float64'],
    ),
    'final': (
        lambda obs: {'final': (np.array([1]), {k: v[1:2] for k, v in obs.items()})},
        ["'final'", '[1]', 'is_first'],
    ),
}


@pytest.mark.parametrize('name', FAULTS)
def test_rows_that_do_not_fit_name_key_expected_and_got(name):
    fault, words = FAULTS[name]
    with opened([functools.partial(Bad, fault)] * 4) as driver:
        driver.reset(zeros)
        with pytest.raises(SpaceError) as error:
            driver(counting_policy, steps=20)
    assert all(word in str(error.value) for word in words)


def test_values_outside_of_their_space_name_the_member():
    def fault(obs):
        name = obs['name'].copy()
        name[2] = 200
        return {'name': name}

    env = CheckSpaces(Bad(fault))
    zeros = {k: np.zeros((4, *v.shape), v.dtype) for k, v in env.act_space.items()}
    env.step({**zeros, 'reset': np.ones(4, bool)})
    with pytest.raises(SpaceError, match="Observation 'name' of member 2.*200"):
        env.step(zeros)
    wrong = np.array([0, 0, 0, 5000], np.int32)
    with pytest.raises(SpaceError, match="Action 'action' of member 3.*5000"):
        env.step({**zeros, 'action': wrong})
