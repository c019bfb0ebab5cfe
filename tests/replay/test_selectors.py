"""Selectors: how often which sequences are drawn."""

import numpy as np
import pytest

from embodied import selectors
from embodied.core.errors import ConfigError, ReplayError
from embodied.replay import Replay
from embodied.replay.sampling.sumtree import SumTree


def filled(selector, steps=30, length=4, **kwargs):
    replay = Replay(length, **{'chunksize': 8, 'selector': selector, **kwargs})
    for number in range(steps):
        replay.add({'x': np.int64(number)})
    return replay


def frequencies(replay, items, draws=20_000):
    starts = replay.sample(draws)['x'][:, 0]
    return np.bincount(starts, minlength=items) / draws


def prioritize(replay, values):
    """Sets the priorities of steps by number, wherever they can be found."""
    batch = replay.sample(2000, 'report')
    _, which = np.unique(batch['x'], return_index=True)
    ids = batch['stepid'].reshape(-1, 20)[which]
    replay.update({'stepid': ids[:, None], 'priority': values[:, None]})


def test_uniform_draws_all_items_alike():
    found = frequencies(filled(selectors.Uniform()), 27)
    assert np.abs(found - 1 / 27).max() < 0.01


@pytest.mark.parametrize('maxfrac', [0.0, 0.5, 1.0])
@pytest.mark.parametrize('exponent', [0.0, 0.8, 1.0])
def test_prioritized_draws_by_maximum_and_mean_of_a_sequence(maxfrac, exponent):
    replay = filled(selectors.Prioritized(exponent, maxfrac))
    values = np.random.default_rng(0).random(30) ** 4 * 10
    prioritize(replay, values)
    powers = values.astype(np.float32) ** exponent
    windows = np.stack([powers[i : i + 4] for i in range(27)])
    weights = maxfrac * windows.max(1) + (1 - maxfrac) * windows.mean(1)
    found = frequencies(replay, 27)
    assert np.abs(found - weights / weights.sum()).max() < 0.015


def test_infinite_initial_priority_draws_new_sequences_first():
    replay = filled(selectors.Prioritized(initial=np.inf))
    prioritize(replay, np.ones(30))
    for number in range(30, 35):
        replay.add({'x': np.int64(number)})
    found = frequencies(replay, 32)
    assert found[:27].sum() == 0
    assert np.abs(found[27:] - 1 / 5).max() < 0.02


def test_drawn_sequences_wait_for_their_update_with_zero_on_sample():
    replay = filled(selectors.Prioritized(zero_on_sample=True), steps=16)
    seen = [replay.sample(1) for _ in range(4)]
    starts = sorted(int(batch['x'][0, 0]) for batch in seen)
    assert len(set(starts)) == 4
    while replay.stats()['priority_total']:
        replay.sample(1)
    assert len({replay.sample(1)['x'][0, 0] for _ in range(200)}) == 13  # uniform
    replay.update({'stepid': seen[0]['stepid'], 'priority': np.ones((1, 4))})
    assert replay.stats()['priority_total'] > 0


@pytest.mark.parametrize('mode', ['report', 'eval'])
def test_draws_that_are_not_trained_on_leave_priorities_alone(mode):
    replay = filled(selectors.Prioritized(zero_on_sample=True))
    before = replay.stats()['priority_total']
    replay.sample(20, mode)
    assert replay.stats()['priority_total'] == before


def test_evicted_sequences_are_never_drawn_by_priority():
    replay = filled(selectors.Prioritized(), steps=30, capacity=12)
    prioritize(replay, np.ones(12))
    for number in range(30, 300):
        replay.add({'x': np.int64(number)})
        assert replay.sample(3)['x'].min() >= number - 11
    assert replay.stats()['priority_total'] == pytest.approx(9)


def test_bad_priorities_are_refused():
    replay = filled(selectors.Prioritized())
    batch = replay.sample(1)
    for bad in (np.nan, -1.0):
        with pytest.raises(ReplayError, match='at least 0'):
            replay.update({'stepid': batch['stepid'], 'priority': np.full((1, 4), bad)})


def test_recency_follows_the_age():
    probs = 1 / np.arange(1, 41)
    found = frequencies(filled(selectors.Recency(probs), steps=43), 40)
    # Rows 0 to 2 complete no item; the probabilities of their ages are redrawn.
    assert np.abs(found - probs[::-1] / probs.sum()).max() < 0.015


def test_recency_serves_what_is_there_when_few_steps_are():
    replay = filled(selectors.Recency(1 / np.arange(1, 10_001)), steps=5)
    assert set(replay.sample(100)['x'][:, 0].tolist()) == {0, 1}


def test_mixture_shares_draws_between_selectors():
    replay = filled(
        selectors.Mixture(
            {
                'uniform': selectors.Uniform(),
                'recency': selectors.Recency([1.0] + [0.0] * 29),
                'priority': selectors.Prioritized(),
            },
            {'uniform': 0.5, 'recency': 0.5, 'priority': 0.0},
        )
    )
    found = frequencies(replay, 27)
    assert found[26] == pytest.approx(0.5 + 0.5 / 27, abs=0.02)
    assert np.abs(found[:26] - 0.5 / 27).max() < 0.01


@pytest.mark.parametrize(
    'make',
    [
        lambda: selectors.Prioritized(maxfrac=2),
        lambda: selectors.Prioritized(exponent=-1),
        lambda: selectors.Recency([0.1, 0.5]),
        lambda: selectors.Recency([]),
        lambda: selectors.Mixture({'a': selectors.Uniform()}, {'a': 0.5}),
        lambda: selectors.Mixture({'a': selectors.Uniform()}, {'b': 1.0}),
    ],
)
def test_settings_that_make_no_sense_are_refused(make):
    with pytest.raises(ConfigError):
        make()


SELECTORS = {
    'uniform': selectors.Uniform,
    'prioritized': lambda: selectors.Prioritized(0.8, 0.5, np.inf, True),
    'recency': lambda: selectors.Recency(1 / np.arange(1, 101)),
    'mixture': lambda: selectors.Mixture(
        {'u': selectors.Uniform(), 'p': selectors.Prioritized(0.8, 0.5, np.inf, True)},
        {'u': 0.3, 'p': 0.7},
    ),
}


@pytest.mark.parametrize('name', SELECTORS)
def test_every_selector_continues_after_load(name):
    rng = np.random.default_rng(0)
    replay, again = (
        Replay(4, 100, chunksize=8, selector=SELECTORS[name]()) for _ in range(2)
    )

    def work(targets, number):
        values = rng.random((4, 4))
        for target in targets:
            target.add_batch({'x': np.array([number, -number])}, [0, 1])
            if number % 3 == 0 and len(target):
                batch = target.sample(4)
                target.update({'stepid': batch['stepid'], 'priority': values})

    for number in range(90):
        work([replay], number)
    again.load(replay.save())
    for number in range(90, 150):
        work([replay, again], number)
        left, right = replay.sample(3), again.sample(3)
        np.testing.assert_array_equal(left['x'], right['x'])
        np.testing.assert_array_equal(left['stepid'], right['stepid'])


def test_sum_tree_finds_leaves_in_proportion():
    tree = SumTree(5)
    tree.set(np.array([4, 0, 2]), np.array([2.0, 1.0, 1.0]))
    found = tree.find(np.array([0.0, 0.24, 0.26, 0.49, 0.5, 0.99]))
    assert found.tolist() == [0, 0, 2, 2, 4, 4]
    assert tree.total == 4.0


@pytest.mark.parametrize('leaves', [1, 16, 17, 300, 5000])
def test_sum_tree_never_draws_an_empty_leaf(leaves):
    rng = np.random.default_rng(leaves)
    weights = np.where(rng.random(leaves) < 0.3, rng.random(leaves), 0)
    weights[rng.integers(leaves)] = 1e30
    tree = SumTree(leaves)
    tree.set(np.arange(leaves), np.ones(leaves))
    tree.set(np.arange(leaves), weights)
    fractions = np.append(rng.random(1000), [0.0, np.nextafter(1, 0)])
    assert (weights[tree.find(fractions)] > 0).all()
    tree.set(np.flatnonzero(weights == 1e30), np.zeros(1))
    weights[weights == 1e30] = 0
    if weights.any():
        counts = np.bincount(tree.find(rng.random(200_000)), minlength=leaves)
        assert np.abs(counts / 200_000 - weights / weights.sum()).max() < 0.01
