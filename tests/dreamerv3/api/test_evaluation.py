"""`dreamer eval`: the scores of whole episodes, and their films."""

import signal

import elements
import gymnasium
import numpy as np
import pytest
from PIL import Image

import dreamerv3
import embodied
from dreamerv3.main import main
from embodied.core.errors import ConfigError
from embodied.logging import read_records
from embodied.processes.signals import Terminated

LENGTHS = [2, 9, 4, 3, 7]


class Counting(embodied.Env):
    """Episode number i of environment n is LENGTHS[n + 2 * i] long, with reward 1."""

    obs_space = {
        'image': elements.Space(np.uint8, (4, 4, 3)),
        'reward': elements.Space(np.float32),
        **{k: elements.Space(bool) for k in ('is_first', 'is_last', 'is_terminal')},
    }
    act_space = {'action': elements.Space(bool), 'reset': elements.Space(bool)}

    def __init__(self, index):
        self._number = index - 2
        self._left = 0

    def step(self, action):
        if action['reset']:
            self._number += 2
            self._left = LENGTHS[self._number % len(LENGTHS)] + 1
        first, self._left = action['reset'], self._left - 1
        return {
            'image': np.full((4, 4, 3), self._left, np.uint8),
            'reward': np.float32(0 if first else 1),
            'is_first': first,
            'is_last': self._left == 0,
            'is_terminal': False,
        }


class Still:
    """An agent that does nothing."""

    init_policy = staticmethod(lambda rows: ())
    modes: set

    def __init__(self):
        self.modes = set()

    def policy(self, carry, obs, mode):
        self.modes.add(mode)
        return carry, {'action': np.zeros(len(obs['is_first']), bool)}, {}


@pytest.mark.parametrize(
    ('numbers', 'error'),
    [
        ([signal.SIGTERM, signal.SIGTERM], Terminated),
        ([signal.SIGHUP], Terminated),
        ([signal.SIGINT], KeyboardInterrupt),
    ],
)
def test_a_signal_ends_an_evaluation_with_closed_environments(numbers, error):
    closed = []

    class Interrupted(Counting):
        def step(self, action):
            if self._number > 2:
                for number in numbers:
                    signal.raise_signal(number)
            return super().step(action)

        def close(self):
            closed.append(self)

    inherited = signal.signal(signal.SIGINT, signal.default_int_handler)
    with pytest.raises(error):
        dreamerv3.evaluate(Still(), Interrupted, episodes=100, envs=2)
    signal.signal(signal.SIGINT, inherited)
    assert len(closed) == 2


def test_every_environment_plays_its_share_whatever_the_lengths():
    agent = Still()
    result = dreamerv3.evaluate(agent, Counting, episodes=5, envs=2, videos=2)
    np.testing.assert_array_equal(result.scores, LENGTHS)
    np.testing.assert_array_equal(result.lengths, LENGTHS)
    assert agent.modes == {'train'}
    assert [film['image'].shape[0] for film in result.films] == [3, 10]
    np.testing.assert_array_equal(result.films[0]['image'][:, 0, 0, 0], [2, 1, 0])
    assert result.summary() == {
        'episodes': 5,
        'mean': 5.0,
        'std': pytest.approx(np.sqrt((9 + 16 + 1 + 4 + 4) / 5)),
        'min': 2.0,
        'max': 9.0,
        'length': 5.0,
    }


def test_greedy_play_asks_for_the_most_likely_action():
    agent = Still()
    dreamerv3.evaluate(agent, Counting, episodes=1, greedy=True)
    assert agent.modes == {'eval'}


def test_numbers_below_one_are_refused():
    with pytest.raises(ConfigError, match='episodes=0'):
        dreamerv3.evaluate(Still(), Counting, episodes=0)


def test_command_prints_scores_and_saves_videos(catch_run, tmp_path, capsys):
    argv = ['eval', str(catch_run), '--episodes', '3', '--envs', '2', '--video', '1']
    flags = ['--out', str(tmp_path), '--run.debug', 'True', '--logger.fps', '5']
    assert main([*argv, *flags]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == (
        '3 episodes of toy_catch with the agent of step 1,234, actions sampled'
    )
    (record,) = read_records(tmp_path / 'eval.jsonl')
    assert record['step'] == 1234
    assert len(record['scores']) == 3 and set(record['scores']) <= {-1.0, 1.0}
    assert record['mean'] == pytest.approx(np.mean(record['scores']))
    mean, low, high = (f'{record[k]:.4g}' for k in ('mean', 'min', 'max'))
    assert lines[1].startswith(f'mean {mean}  std ')
    assert lines[1].endswith(f'min {low}  max {high}')
    assert lines[2].endswith('videos/eval_0_image-000000001234.gif')
    with Image.open(lines[2]) as film:
        assert (film.n_frames, film.info['duration']) == (8, 200)


@pytest.mark.parametrize(
    ('argv', 'words'),
    [
        (['{tmp}'], ['no checkpoint']),
        (['{run}', '--no.such', '1'], ["Unknown flag '--no.such'"]),
        (['{run}', '--task', 'gym_CartPole-v1', '--video'], ['no observation is an']),
        (
            ['{run}', '--task', 'gym_CartPole-v1'],
            ["the observation 'image', uint8", 'The environment has none'],
        ),
    ],
)
def test_mistakes_are_explained(catch_run, tmp_path, capsys, argv, words):
    argv = [x.format(tmp=tmp_path, run=catch_run) for x in argv]
    assert main(['eval', *argv, '--run.debug']) == 2
    error = capsys.readouterr().err
    assert all(word in error for word in words), error


def test_evaluation_takes_what_training_takes(catch_run):
    seeds = []

    def make_env(seed):
        seeds.append(seed)
        return gymnasium.make('CartPole-v1')

    env = embodied.envs.wrap(gymnasium.make('CartPole-v1'))
    acts = {k: v for k, v in env.act_space.items() if k != 'reset'}
    agent = embodied.RandomAgent(env.obs_space, acts, seed=0)
    result = dreamerv3.evaluate(agent, make_env, episodes=4, envs=2)
    np.testing.assert_array_equal(result.scores, result.lengths)  # 1 per step
    assert len(set(seeds)) == 2
    agent = dreamerv3.load(catch_run)
    result = dreamerv3.evaluate(agent, task='toy_catch', episodes=2, envs=2)
    assert set(np.abs(result.scores)) == {1}


@pytest.mark.parametrize('given', [{}, {'make_env': Counting, 'task': 'toy_catch'}])
def test_there_is_one_environment_to_evaluate_in(given):
    with pytest.raises(ConfigError, match='either make_env'):
        dreamerv3.evaluate(Still(), **given)


def test_environments_of_functions_are_adjusted_as_for_training(tmp_path):
    def make_env():
        return Box()

    options = {'env.own.size': 16, 'env.own.length': 3, 'run.steps': 40}
    run = dreamerv3.train(
        make_env, tmp_path, configs=['tiny', 'debug'], options=options
    )
    result = dreamerv3.evaluate(run.agent(), make_env, episodes=2, envs=1)
    assert result.lengths.tolist() == [3, 3]


class Box(gymnasium.Env):
    """Images of 20 x 20 without an end."""

    observation_space = gymnasium.spaces.Box(0, 255, (20, 20, 3), np.uint8)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        return np.zeros((20, 20, 3), np.uint8), {}

    def step(self, action):
        return np.zeros((20, 20, 3), np.uint8), 1.0, False, False, {}
