"""Minari datasets: read as Gymnasium's adapter observes, and written from a replay."""

import warnings

import gymnasium
import minari
import numpy as np
import pytest
from gymnasium import spaces
from minari.data_collector import EpisodeBuffer
from recordings import flagged, write_replay

from dreamerv3.commands.replay_tools import main
from embodied import datasets, envs
from embodied.core.errors import ConfigError, MissingExtraError, ReplayError
from embodied.datasets.completing import complete
from embodied.datasets.minari_files import write_minari
from embodied.datasets.source import Episode


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv('MINARI_DATASETS_PATH', str(tmp_path / 'minari'))
    return tmp_path / 'minari'


def create(name, obs_space, act_space, observations, actions, ends):
    """Dataset of one episode per entry; ends: whether it ended in a terminal state."""
    buffers = []
    for obs, acts, terminal in zip(observations, actions, ends, strict=True):
        last = np.arange(len(acts)) == len(acts) - 1
        buffers.append(
            EpisodeBuffer(
                observations=obs,
                actions=acts,
                rewards=np.arange(1.0, len(acts) + 1),
                terminations=last & terminal,
                truncations=last & (not terminal),
            )
        )
    with warnings.catch_warnings():
        warnings.simplefilter('ignore', UserWarning)
        minari.create_dataset_from_buffers(
            name, buffers, observation_space=obs_space, action_space=act_space
        )


def create_cartpole(name='toy/cartpole-v0'):
    env = gymnasium.make('CartPole-v1')
    obs = [np.full((5, 4), n, np.float32) for n in range(2)]
    acts = [np.array([0, 1, 1, 0])] * 2
    create(name, env.observation_space, env.action_space, obs, acts, [True, False])


def rows(source, names=None):
    names = names or source.spaces
    return [complete(episode) for episode in source.episodes(names)]


def test_rewards_and_ends_move_to_the_row_that_they_lead_to():
    create_cartpole()
    source = datasets.open_source('minari:toy/cartpole-v0')
    assert (source.steps, source.count) == (10, 2)
    ended, cut = rows(source)
    assert ended['reward'].tolist() == [0, 1, 2, 3, 4]
    assert ended['action'].tolist() == [0, 1, 1, 0, 0]
    assert ended['is_terminal'].tolist() == [False] * 4 + [True]
    assert cut['is_terminal'].tolist() == [False] * 5
    assert ended['is_last'].tolist() == cut['is_last'].tolist() == [False] * 4 + [True]


def test_keys_and_spaces_are_those_of_the_task_in_gymnasium():
    create_cartpole()
    source = datasets.open_source('minari:toy/cartpole-v0')
    obs, act = datasets.spaces_of(source)
    env = envs.make('gym:CartPole-v1')
    assert obs.keys() == env.obs_space.keys()
    assert act.keys() == env.act_space.keys() - {'reset'}
    assert (act['action'].dtype, int(act['action'].high)) == (np.int32, 2)
    assert obs['vector'].dtype == np.float32
    assert datasets.Fitting(obs, act, {}, 'CartPole').check(source) == []


def test_the_folder_of_a_dataset_is_read_like_its_id(home):
    create_cartpole()
    source = datasets.open_source(str(home / 'toy' / 'cartpole-v0'))
    assert (source.steps, source.count) == (10, 2)


def test_actions_are_scaled_from_their_bounds_as_the_environment_scales_them_back():
    box = spaces.Box(np.float32([-2, 0]), np.float32([2, 10]))
    given = np.float32([[-2, 0], [0, 5], [1, 7.5], [4, -3]])  # the last is outside
    obs = spaces.Box(-1, 1, (1,), np.float64)
    create('toy/box-v0', obs, box, [np.zeros((5, 1))], [given], [True])
    (values,) = rows(datasets.open_source('minari:toy/box-v0'))
    expected = [[-1, -1], [0, 0], [0.5, 0.5], [1, -1], [0, 0]]
    assert values['action'].tolist() == expected


def test_integers_count_from_zero_and_dicts_keep_their_names():
    obs = spaces.Dict(
        {
            'pos': spaces.Discrete(4, start=2),
            'arm': spaces.Dict({'x': spaces.Box(0, 1)}),
        }
    )
    observed = {
        'pos': np.array([2, 5, 3]),
        'arm': {'x': np.zeros((3, 1), np.float32)},
    }
    act = spaces.Discrete(3, start=-1)
    create('toy/dict-v0', obs, act, [observed], [np.array([-1, 1])], [True])
    source = datasets.open_source('minari:toy/dict-v0')
    (values,) = rows(source)
    assert values['pos'].tolist() == [0, 3, 1]
    assert values['action'].tolist() == [0, 2, 0]
    assert values['arm/x'].shape == (3, 1)
    assert int(source.spaces['pos'].high) == 4


def test_images_are_resized_to_those_of_the_task():
    obs = spaces.Box(0, 255, (32, 32, 3), np.uint8)
    pictures = np.full((3, 32, 32, 3), 77, np.uint8)
    create(
        'toy/pixels-v0', obs, spaces.Discrete(2), [pictures], [np.array([0, 1])], [1]
    )
    source = datasets.open_source('minari:toy/pixels-v0')
    wanted, act = datasets.spaces_of(source)
    small = envs.make('dummy_disc', size=16).obs_space['image']
    fitting = datasets.Fitting({**wanted, 'image': small}, act, {}, 'the task')
    assert fitting.check(source) == []
    (values,) = fitting.episodes([source])
    assert values['image'].shape == (3, 16, 16, 3)
    assert abs(values['image'].astype(int) - 77).max() <= 2  # it was a JPEG


def test_an_id_that_is_not_there_is_named_with_those_that_are():
    create_cartpole()
    with pytest.raises(ConfigError) as raised:
        datasets.open_source('minari:D4RL/door/human-v2')
    assert 'minari download D4RL/door/human-v2' in str(raised.value)
    assert 'There are: toy/cartpole-v0.' in str(raised.value)


@pytest.mark.parametrize('name', ['nothing', 'a/catch-v0', '../catch-v0', ''])
def test_a_name_that_is_no_id_is_refused(name):
    with pytest.raises(ConfigError, match='no id of a Minari dataset'):
        datasets.open_source(f'minari:{name}')
    with pytest.raises(ConfigError, match='no id of a Minari dataset'):
        write_minari(name, [], {}, {})


def test_a_dataset_without_its_data_is_refused(home):
    create_cartpole()
    (home / 'toy' / 'cartpole-v0' / 'data' / 'metadata.json').write_text('{}')
    with pytest.raises(ReplayError, match='cannot be read'):
        datasets.open_source('minari:toy/cartpole-v0')


def test_a_dataset_whose_data_are_damaged_is_refused(home):
    create_cartpole()
    path = home / 'toy' / 'cartpole-v0' / 'data' / 'main_data.hdf5'
    source = datasets.open_source('minari:toy/cartpole-v0')
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(ReplayError, match='cartpole-v0 cannot be read.*truncated'):
        rows(source)


def recorded(number, length, terminal):
    steps = np.arange(length)
    return flagged(
        {
            'image': np.full((length, 8, 8, 3), 10 * number, np.uint8)
            + steps[:, None, None, None].astype(np.uint8),
            'action': (steps % 3).astype(np.int32) * (steps < length - 1),
            'reward': np.float32(steps),
            'is_terminal': (steps == length - 1) & terminal,
        }
    )


def test_an_exported_replay_comes_back_bit_for_bit(tmp_path, capsys):
    episodes = [recorded(0, 5, True), recorded(1, 7, False), recorded(2, 4, True)]
    write_replay(tmp_path / 'run' / 'replay', episodes)
    name = 'toy/exported-v1'
    assert main(['export', str(tmp_path / 'run'), name, '--format', 'minari']) == 0
    assert f'3 episodes written to the Minari dataset {name}' in capsys.readouterr().out
    dataset = minari.load_dataset(name)
    assert isinstance(dataset.action_space, spaces.Discrete)
    assert [len(x) for x in dataset] == [4, 6, 3]
    assert [bool(x.truncations[-1]) for x in dataset] == [False, True, False]
    back = rows(datasets.open_source(f'minari:{name}'))
    for values, original in zip(back, episodes, strict=True):
        for key, value in original.items():
            np.testing.assert_array_equal(values[key], value, err_msg=key)


def test_keys_with_parts_and_vectors_of_integers_come_back(tmp_path):
    env = envs.make('dummy_mixed', size=8)
    obs = {k: v for k, v in env.obs_space.items() if k not in datasets.fitting.RESERVED}
    obs = {k: v for k, v in obs.items() if not k.startswith('log/') and v.dtype != bool}
    act = {k: v for k, v in env.act_space.items() if k != 'reset'}
    rng = np.random.default_rng(0)
    draw = lambda space: np.stack([space.sample() for _ in range(6)])
    values = {k: draw(v) for k, v in {**obs, **act}.items()}
    values |= {'reward': rng.normal(size=6).astype(np.float32)}
    write_minari('toy/mixed-v0', [Episode('x', flagged(values))], obs, act)
    source = datasets.open_source('minari:toy/mixed-v0')
    (back,) = rows(source)
    for key in obs:
        np.testing.assert_allclose(back[key], values[key], err_msg=key)
    for key in act:
        np.testing.assert_allclose(back[key][:-1], values[key][:-1], err_msg=key)


def test_an_id_that_is_taken_is_refused(tmp_path, capsys):
    write_replay(tmp_path / 'replay', [recorded(0, 5, True)])
    argv = ['export', str(tmp_path), 'toy/x-v0', '--format', 'minari']
    assert main(argv) == 0
    assert main(argv) == 1
    assert 'There is a Minari dataset toy/x-v0 already' in capsys.readouterr().err


def test_without_the_package_the_extra_is_named(monkeypatch):
    monkeypatch.setattr('importlib.util.find_spec', lambda name: None)
    with pytest.raises(MissingExtraError, match=r'dreamer-parallel\[minari\]'):
        datasets.open_source('minari:toy/cartpole-v0')


def test_a_recorded_episode_is_what_an_agent_would_have_played():
    env = gymnasium.make('Pendulum-v1')
    rng = np.random.default_rng(0)
    acts = rng.uniform(-2, 2, (20, 1)).astype(np.float32)
    obs, rewards = [env.reset(seed=3)[0]], []
    for act in acts:
        seen, reward, *_ = env.step(act)
        obs.append(seen)
        rewards.append(reward)
    create(
        'toy/pendulum-v0',
        env.observation_space,
        env.action_space,
        [np.stack(obs)],
        [acts],
        [0],
    )
    (values,) = rows(datasets.open_source('minari:toy/pendulum-v0'))
    played = envs.make('gym:Pendulum-v1', seed=3)
    seen = played.step({'action': np.zeros(1, np.float32), 'reset': True})
    for t in range(20):
        np.testing.assert_allclose(seen['vector'], values['vector'][t], atol=1e-4)
        seen = played.step({'action': values['action'][t], 'reset': False})
        np.testing.assert_allclose(seen['reward'], rewards[t], atol=1e-3)
