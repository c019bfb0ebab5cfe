"""Every environment keeps its own carry, in the form that the agent chose."""

import numpy as np
import pytest
from acting_parts import FORMS, CountingAgent, TableAgent
from hypothesis import given, settings
from hypothesis import strategies as st

from embodied.core.errors import DreamerError
from embodied.run.parallel.actor.carries import PolicyCarries, make_carries
from embodied.run.parallel.actor.policy import WORTH_COMPILING, Policy, bucket_size
from embodied.run.parallel.supervision.health import Health

SLOTS, BATCH = 6, 5
NONE = np.zeros(0, np.int32)
AGENTS = {
    **{form: lambda form=form: CountingAgent(form) for form in FORMS},
    'table': TableAgent,
}
BATCHES = st.lists(
    st.lists(st.integers(1, SLOTS), min_size=1, max_size=BATCH, unique=True),
    max_size=12,
)


def make_policy(agent, slots, batch):
    return Policy(agent, slots, batch, Health())


def obs_of(count):
    return {'is_first': np.zeros(count, bool), 'x': np.arange(count, dtype=np.float32)}


@pytest.mark.parametrize('name', AGENTS)
@settings(max_examples=25, deadline=None)
@given(batches=BATCHES)
def test_each_environment_is_counted_apart_whatever_the_batches(name, batches):
    agent = AGENTS[name]()
    policy = make_policy(agent, SLOTS, BATCH)
    seen = dict.fromkeys(range(1, SLOTS + 1), 0)
    for slots in batches:
        acts, outs = policy(np.array(slots), NONE, obs_of(len(slots)), 'train')
        expected = [seen[slot] for slot in slots]
        np.testing.assert_array_equal(acts['action'], expected)
        for slot in slots:
            seen[slot] += 1
    assert {rows for rows, _ in agent.calls} <= {1, 2, 4, 5}


@pytest.mark.parametrize('form', FORMS)
def test_only_renewed_environments_start_anew(form):
    carries = PolicyCarries(CountingAgent(form), 3)
    for _ in range(2):
        carries.act(np.array([1, 2, 3]), obs_of(3), 'train')
    carries.renew(np.array([2]))
    acts, _ = carries.act(np.array([1, 2, 3]), obs_of(3), 'train')
    np.testing.assert_array_equal(acts['action'], [2, 0, 2])


class Empty:
    def init_policy(self, batch_size):
        return ()

    def policy(self, carry, obs, mode='train'):
        assert carry == ()
        return (), {'action': obs['x']}, {}


def test_an_agent_without_memory_has_an_empty_carry():
    acts, _ = make_policy(Empty(), 3, 4)(np.array([2, 3, 1]), NONE, obs_of(3), 'eval')
    np.testing.assert_array_equal(acts['action'], [0, 1, 2])


def test_arrays_of_jax_stay_on_their_device():
    jnp = pytest.importorskip('jax.numpy')

    class Agent(Empty):
        def init_policy(self, batch_size):
            return {'count': jnp.zeros(batch_size, jnp.int32)}

        def policy(self, carry, obs, mode='train'):
            assert isinstance(carry['count'], jnp.ndarray)
            return {'count': carry['count'] + 1}, {'action': carry['count']}, {}

    policy = make_policy(Agent(), 3, 4)
    for slots, counts in (([1, 2, 3], [0, 0, 0]), ([2], [1]), ([3, 2, 1], [1, 2, 1])):
        acts, _ = policy(np.array(slots), NONE, obs_of(len(slots)), 'train')
        assert isinstance(acts['action'], np.ndarray)
        np.testing.assert_array_equal(acts['action'], counts)


def test_padding_is_stripped_from_acts_and_outs():
    agent = CountingAgent()
    acts, outs = make_policy(agent, 8, 8)(np.array([7, 2, 5]), NONE, obs_of(3), 'train')
    assert agent.calls == [(8, 'train')]
    assert acts['action'].shape == outs['latent'].shape == (3,)


def test_few_small_batches_are_not_worth_a_program_of_their_own():
    agent = CountingAgent()
    policy = make_policy(agent, 8, 8)
    for slots in ([3], [4, 2], [5]):
        policy(np.array(slots), NONE, obs_of(len(slots)), 'train')
    assert agent.calls == [(8, 'train')] * 3
    for _ in range(WORTH_COMPILING):
        policy(np.array([3]), NONE, obs_of(1), 'train')
    assert agent.calls[-1] == (1, 'train')
    policy(np.array([4, 2]), NONE, obs_of(2), 'train')
    policy(np.array([4]), NONE, obs_of(1), 'eval')
    assert agent.calls[-2:] == [(8, 'train'), (8, 'eval')]


@pytest.mark.parametrize(
    'planned, sizes',
    [
        (1, (1, 2, 4, 8, 16)),
        (3, (1, 2, 3, 4, 8, 16)),
        (8, (1, 2, 4, 8, 16)),
        (9, (1, 2, 4, 8, 9, 16)),
    ],
)
def test_batches_have_few_sizes(planned, sizes):
    assert {bucket_size(count, planned) for count in range(1, 17)} == set(sizes)
    assert all(count <= bucket_size(count, planned) for count in range(1, 100))


@pytest.mark.parametrize('name', AGENTS)
def test_tables_grow_and_shrink_with_the_slots(name):
    policy = make_policy(AGENTS[name](), SLOTS, BATCH)
    seen = dict.fromkeys(range(1, 41), 0)

    def act(*slots):
        new = np.array([slot for slot in slots if not seen[slot]], np.int32)
        acts, _ = policy(np.array(slots), new, obs_of(len(slots)), 'train')
        assert acts['action'].tolist() == [seen[slot] for slot in slots]
        for slot in slots:
            seen[slot] += 1

    act(1, 6)
    assert policy.slots == SLOTS
    act(6, 7, 1)
    act(8, 7, 1)
    assert policy.slots == 8
    for slot in range(9, 41):
        act(slot, 1)
    assert policy.slots == 64
    policy.shrink(lambda: 9)
    assert policy.slots == 16
    act(1, 7, 9)
    policy.shrink(lambda: 0)
    assert policy.slots == SLOTS
    act(1, 6)


def test_a_table_that_cannot_be_resized_is_explained():
    class Agent:
        def init_table(self, rows):
            return np.zeros(rows, np.int32)

        def policy_rows(self, table, rows, obs, mode='train'):
            return table, {'action': table[rows]}, {}

    policy = make_policy(Agent(), 1, 1)
    with pytest.raises(DreamerError, match='room for 2 environments.*resize_table'):
        policy(np.array([2]), NONE, obs_of(1), 'train')


def test_an_agent_with_a_table_keeps_the_carries_itself():
    agent = TableAgent()
    carries = make_carries(agent, 3)
    acts, _ = carries.act(np.array([3, 0, 0]), obs_of(3), 'eval')
    np.testing.assert_array_equal(acts['action'], [0, 0, 0])
    assert agent.calls == [(3, 'eval')]


WRONG = {
    'a number': (lambda n: 0, lambda carry: carry, 'one row per environment'),
    'other keys': (lambda n: {'a': [0] * n}, lambda carry: {'b': []}, 'structure'),
    'a missing part': (lambda n: ([0] * n, ()), lambda carry: carry[:1], 'structure'),
    'too few rows': (lambda n: [0] * n, lambda carry: carry[:-1], 'returned 3'),
}


@pytest.mark.parametrize('name', WRONG)
def test_a_carry_that_breaks_the_contract_is_explained(name):
    make, change, message = WRONG[name]

    class Agent:
        def init_policy(self, batch_size):
            return make(batch_size)

        def policy(self, carry, obs, mode='train'):
            return change(carry), {'action': obs['x']}, {}

    with pytest.raises(DreamerError, match=message):
        make_policy(Agent(), 3, 4)(np.array([1, 2]), NONE, obs_of(2), 'train')


def test_acts_without_rows_are_explained():
    class Agent(Empty):
        def policy(self, carry, obs, mode='train'):
            return (), {'action': np.zeros(7)}, {}

    with pytest.raises(DreamerError, match=r"'action' of shape \(7,\) for 4 rows"):
        make_policy(Agent(), 3, 4)(np.array([1, 2]), NONE, obs_of(2), 'train')
