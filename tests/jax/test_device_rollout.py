"""Steps on the device are those that the driver makes, several in one program."""

import contextlib
import functools

import numpy as np
import pytest
from functional_walk import Walk
from toy_model import Toy, batch

import embodied
import embodied.jax
from embodied.envs.vector.functional.members import FunctionalVectorEnv

MEMBERS, SEEDS = 4, [3, 1, 4, 1]


def make_env(index=0):
    return FunctionalVectorEnv(Walk(), MEMBERS, SEEDS)


def driven(agent, steps):
    """Transitions [T, N, ...] of the driver."""
    batches = []
    driver = embodied.Driver([make_env] * MEMBERS, parallel=False)
    with contextlib.closing(driver):
        driver.on_batch(lambda trans, _: batches.append(trans))
        driver.reset(agent.init_policy)
        driver(functools.partial(agent.policy, mode='train'), steps=steps * MEMBERS)
    return {key: np.stack([x[key] for x in batches]) for key in batches[0]}


def rolled(agent, calls):
    parts = [agent.roll().fetch() for _ in range(calls)]
    return {key: np.concatenate([x[key] for x in parts]) for key in parts[0]}


def make_agent(steps=5):
    agent = embodied.jax.Agent(Toy(), 0)
    agent.play_on_device(make_env(), steps, SEEDS)
    return agent


def test_transitions_are_those_of_the_driver():
    got, expected = rolled(make_agent(), 8), driven(embodied.jax.Agent(Toy(), 0), 40)
    assert got.keys() == expected.keys()
    assert expected['is_last'].sum() > 20
    for key, value in expected.items():
        assert got[key].dtype == value.dtype, key
        np.testing.assert_allclose(got[key], value, atol=1e-5, err_msg=key)


def test_episodes_are_whole():
    trans = rolled(make_agent(), 8)
    first, last = trans['is_first'], trans['is_last']
    assert first[0].all()
    assert (first[1:] == last[:-1]).all()
    assert (trans['act'][last] == 0).all()
    assert (trans['act'][~last] != 0).all()
    assert (trans['reward'][first] == 0).all()
    assert 0 < trans['is_terminal'].sum() < last.sum()
    assert (last | ~trans['is_terminal']).all()
    steps = np.cumsum(~first, 0)
    lengths = np.diff(np.stack([steps[last[:, i], i][:5] for i in range(MEMBERS)]))
    assert lengths.min() >= 2 and lengths.max() <= 6


@pytest.mark.parametrize('steps', [1, 10, 40])
def test_how_many_steps_a_program_has_makes_no_difference(steps):
    expected = rolled(make_agent(5), 8)
    got = rolled(make_agent(steps), 40 // steps)
    for key, value in expected.items():
        np.testing.assert_allclose(got[key], value, atol=1e-5, err_msg=key)


def test_acting_follows_training():
    agent, other = make_agent(), make_agent()
    carry = agent.init_train(2)
    for number in range(3):
        carry, *_ = agent.train(carry, batch(number))
    mean = lambda agent: agent.roll().fetch()['act'].mean()
    assert abs(mean(agent) - mean(other)) > 1e-3


def test_counts_of_policy_calls_continue():
    agent = make_agent()
    agent.roll().fetch()
    assert agent.save()['counts'][2] == 5
    agent.policy(agent.init_policy(2), {'x': np.zeros((2, 3), np.float32)})
    assert agent.save()['counts'][2] == 6
