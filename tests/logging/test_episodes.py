import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from embodied.logging import EpisodeStats


def step(reward, first=False, last=False, **logs):
    logs = {f'log/{k}': v for k, v in logs.items()}
    tran = {'reward': np.float32(reward), 'is_first': first, 'is_last': last}
    return {**tran, 'is_terminal': False, 'image': np.zeros((2, 2, 3)), **logs}


def test_result_sums_rewards_and_counts_actions():
    stats = EpisodeStats()
    assert stats.add(step(0, first=True, wood=1), 3) is None
    assert stats.add(step(1.5, wood=4), 3) is None
    result = stats.add(step(-0.5, last=True, wood=1), 3)
    assert result == {
        'score': 1.0,
        'length': 2,
        'log/wood/sum': 6.0,
        'log/wood/avg': 2.0,
        'log/wood/max': 4.0,
    }


def test_negative_log_values_have_a_negative_maximum():
    stats = EpisodeStats()
    stats.add(step(0, first=True, height=-3))
    assert stats.add(step(0, last=True, height=-2))['log/height/max'] == -2


def test_log_images_are_no_statistics():
    stats = EpisodeStats()
    stats.add(step(0, first=True, view=np.zeros((2, 2, 3))))
    assert stats.add(step(1, last=True)) == {'score': 1.0, 'length': 1}


def test_abandoned_episode_does_not_leak_into_the_next():
    stats = EpisodeStats()
    stats.add(step(0, first=True))
    stats.add(step(100, wood=9))
    stats.add(step(0, first=True))
    assert stats.add(step(1, last=True)) == {'score': 1.0, 'length': 1}


def test_episode_whose_beginning_was_not_seen_gives_no_result():
    stats = EpisodeStats()
    assert stats.add(step(5)) is None
    assert stats.add(step(5, last=True)) is None
    stats.add(step(0, first=True))
    assert stats.add(step(1, last=True))['score'] == 1.0


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(-5, 5), st.booleans())))
def test_interrupted_and_uninterrupted_counting_agree(steps):
    whole, halves = EpisodeStats(), EpisodeStats()
    begun = {}
    for worker, reward, last in steps:
        first = begun.setdefault(worker, True)
        begun[worker] = last
        tran = step(reward, first, last, wood=reward)
        expected = whole.add(tran, worker)
        data = pickle.loads(pickle.dumps(halves.save()))
        halves = EpisodeStats()
        halves.load(data)
        assert halves.add(tran, worker) == expected


@pytest.mark.parametrize('when', [0, 1, 2])
def test_saved_state_does_not_change_afterwards(when):
    trans = [step(0, first=True, wood=1), step(1, wood=1), step(1, wood=2)]
    stats = EpisodeStats()
    for tran in trans[: when + 1]:
        stats.add(tran)
    data = stats.save()
    before = pickle.dumps(data)
    for tran in trans[when + 1 :] + [step(0, last=True)]:
        stats.add(tran)
    assert pickle.dumps(data) == before
