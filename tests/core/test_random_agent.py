"""The random agent covers its action space and nothing else."""

import elements
import numpy as np
import pytest

import embodied
from embodied.envs.spaces import Checker

SPACES = {
    'discrete': elements.Space(np.int32, (), 0, 3),
    'multi': elements.Space(np.int32, (2,), 0, [2, 4]),
    'offset': elements.Space(np.int32, (), 2, 4),
    'flag': elements.Space(bool, (2,)),
    'box': elements.Space(np.float32, (2, 2), -2, 1),
    'free': elements.Space(np.float32, (3,)),
    'reset': elements.Space(bool),
}


def act(agent, count=200):
    _, acts, outs = agent.policy((), {'is_first': np.zeros(count, bool)})
    assert outs == {}
    return acts


@pytest.mark.parametrize('key', sorted(SPACES.keys() - {'reset'}))
def test_actions_lie_in_their_space_and_cover_it(key):
    acts = act(embodied.RandomAgent({}, SPACES, seed=0))
    assert acts.keys() == SPACES.keys() - {'reset'}
    space, values = SPACES[key], acts[key]
    assert values.shape == (200, *space.shape)
    assert all(Checker(space).fits(value) for value in values)
    if space.discrete:
        counts = [len(set(x.tolist())) for x in values.reshape(200, -1).T]
        assert counts == np.broadcast_to(space.classes, space.shape).flatten().tolist()
    elif np.isfinite(space.low).all():
        assert (values.min(0) < -1.8).all() and (values.max(0) > 0.8).all()


def test_the_seed_and_the_saved_state_decide_the_actions():
    same = [embodied.RandomAgent({}, SPACES, seed=3) for _ in range(2)]
    other = embodied.RandomAgent({}, SPACES, seed=4)
    act(same[0]), act(same[1])
    expected = act(same[0])
    other.load(same[1].save())
    for agent in (same[1], other):
        acts = act(agent)
        assert all(np.array_equal(acts[k], expected[k]) for k in expected)


def test_it_fulfils_the_contract_of_agents():
    agent = embodied.RandomAgent({}, SPACES)
    assert isinstance(agent, embodied.Agent)
    batch = {'reward': np.zeros((2, 3))}
    assert agent.train(agent.init_train(2), batch) == ((), {}, {})
    assert agent.report(agent.init_report(2), batch) == ((), {})
    assert list(agent.stream(iter([batch]))) == [batch]
    assert agent.init_policy(2) == ()
