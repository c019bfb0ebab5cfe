"""Fitting: which data an agent takes, how they are brought into its spaces."""

import elements
import numpy as np
import pytest
from recordings import episode, flagged, write_npz, write_replay

from embodied.core.errors import ReplayError, SpaceError
from embodied.datasets import Fitting, open_source, spaces_of
from embodied.envs.spaces import obs_spaces

OBS = obs_spaces({'vector': elements.Space(np.float32, (2,))})
ACT = {'action': elements.Space(np.int32, (), 0, 3)}
LATENTS = {'dyn/deter': elements.Space(np.float32, (4,))}


def fitting(obs=OBS, act=ACT, latents=LATENTS, use_latents=False):
    return Fitting(obs, act, latents, 'the task toy', use_latents)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / 'data'


def npz(folder, *episodes):
    return open_source(str(write_npz(folder, episodes)))


def test_data_have_all_keys_of_the_agent_and_no_others(folder):
    source = npz(folder, episode(0, 3, unused=np.zeros(3)))
    assert fitting().check(source) == []
    (values,) = fitting().episodes([source])
    assert values.keys() == {*OBS, *ACT, *LATENTS}
    assert not values['dyn/deter'].any()
    assert values['dyn/deter'].shape == (3, 4)


def test_wider_numbers_are_cast(folder):
    wide = episode(0, 3) | {
        'vector': np.ones((3, 2), np.float64),
        'action': np.array([0, 2, 1], np.int64),
        'reward': np.arange(3),
    }
    source = npz(folder, wide)
    fitting().check(source)
    (values,) = fitting().episodes([source])
    kinds = {key: values[key].dtype for key in ('vector', 'action', 'reward')}
    assert kinds == {'vector': np.float32, 'action': np.int32, 'reward': np.float32}
    assert values['action'].tolist() == [0, 2, 1]


def test_both_sides_are_named_when_spaces_differ(folder):
    source = npz(folder, episode(0, 3))
    obs = obs_spaces(
        {
            'vector': elements.Space(np.float32, (5,)),
            'image': elements.Space(np.uint8, (8, 8, 3)),
        }
    )
    with pytest.raises(SpaceError) as raised:
        fitting(obs).check(source)
    text = str(raised.value)
    assert f'The data in {folder} do not fit the task toy:' in text
    assert (
        'vector: float32 of shape (5,) in the task toy, float32 of shape (2,)' in text
    )
    assert 'image: uint8 of shape (8, 8, 3) in the task toy, nothing in' in text


@pytest.mark.parametrize(
    'key, value, message',
    [
        ('action', np.array([0, 5, 1], np.int32), 'from 0 to 2, got int32 .* to 5'),
        ('reward', np.array([0, np.nan, 1], np.float32), "'reward' of .*NaN"),
        ('vector', np.full((3, 2), np.inf, np.float32), "'vector' of .*infinity"),
    ],
)
def test_values_outside_of_the_spaces_are_named_with_their_episode(
    folder, key, value, message
):
    source = npz(folder, episode(0, 3), episode(1, 3) | {key: value})
    with pytest.raises(SpaceError, match=message) as raised:
        list(fitting().episodes([source]))
    assert 'episode001.npz' in str(raised.value)
    assert 'do not fit the task toy' in str(raised.value)


def test_integers_too_large_for_an_agent_are_refused(folder):
    source = npz(folder, episode(0, 3) | {'action': np.array([0, 1 << 32, 1])})
    with pytest.raises(SpaceError, match=r'to 2, got int64 .* to 4.29497e\+09'):
        list(fitting().episodes([source]))


def test_sampled_actions_beyond_their_bounds_are_taken(folder):
    act = {'action': elements.Space(np.float32, (1,), -1, 1)}
    given = np.float32([[-1.5], [0.5], [2.0]])
    source = npz(folder, episode(0, 3) | {'action': given})
    (values,) = fitting(act=act).episodes([source])
    assert values['action'].tolist() == given.tolist()


def test_data_without_rewards_are_refused(folder):
    values = episode(0, 3)
    del values['reward']
    with pytest.raises(ReplayError, match="no key 'reward'"):
        fitting().check(npz(folder, values))


def test_data_that_do_not_tell_ends_from_cuts_are_noted(folder):
    values = episode(0, 3)
    del values['is_terminal']
    (note,) = fitting().check(npz(folder, values))
    assert "no key 'is_terminal': its episodes count as cut off" in note


@pytest.mark.parametrize('size, used', [(4, True), (6, False)])
def test_states_of_the_model_are_used_if_they_fit_and_are_asked_for(
    tmp_path, size, used
):
    states = np.full((3, size), 7, np.float32)
    write_replay(tmp_path / 'replay', [flagged(episode(0, 3, **{'dyn/deter': states}))])
    source = open_source(str(tmp_path))
    (values,) = fitting(use_latents=True).episodes([source])
    assert values['dyn/deter'].tolist() == [[7.0 * used] * 4] * 3
    (values,) = fitting(use_latents=False).episodes([source])
    assert not values['dyn/deter'].any()


def test_spaces_are_read_off_the_data(folder):
    source = npz(folder, episode(0, 3), episode(1, 3))
    obs, act = spaces_of(source)
    assert obs.keys() == {'vector', 'reward', 'is_first', 'is_last', 'is_terminal'}
    assert act.keys() == {'action'}
    assert (int(act['action'].low), int(act['action'].high)) == (0, 3)


def test_continuous_actions_are_those_of_agents(folder):
    source = npz(folder, episode(0, 3) | {'action': np.zeros((3, 2))})
    _, act = spaces_of(source)
    assert act['action'].dtype == np.float32
    assert (act['action'].low == -1).all() and (act['action'].high == 1).all()


def test_data_that_do_not_name_the_action_need_a_task(folder):
    values = episode(0, 3)
    values['move'] = values.pop('action')
    with pytest.raises(ReplayError, match='vector, move.*Name the task'):
        spaces_of(npz(folder, values))
