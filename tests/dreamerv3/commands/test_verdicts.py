"""`dreamer check-env` and `dreamer train` agree on what can be trained."""

import pytest

from dreamerv3.main import main

# Environments whose spaces are the only thing that differs.
MODULE = """
import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete


class Game(gymnasium.Env):
    def __init__(self, observations, actions=None):
        self.observation_space = observations
        self.action_space = Discrete(2) if actions is None else actions
        self.count = 0

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self.count = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        self.count += 1
        return self.observation_space.sample(), 0.0, False, self.count == 5, {}


def pixels(*shape):
    return Box(0, 255, shape, np.uint8)


VECTOR = Box(-1, 1, (3,), np.float32)

vector = lambda: Game(VECTOR)
number = lambda: Game(Discrete(4))
square = lambda: Game(pixels(64, 64, 3))
odd = lambda: Game(pixels(84, 84, 3))
small = lambda: Game(pixels(16, 16, 1))
flat = lambda: Game(pixels(64, 96, 1))
first_64 = lambda: Game(pixels(3, 64, 64))
first_84 = lambda: Game(pixels(3, 84, 84))
first_gray = lambda: Game(pixels(1, 84, 84))
first_stack = lambda: Game(pixels(12, 84, 84))
unequal = lambda: Game(Dict(near=pixels(64, 64, 3), far=pixels(96, 96, 3)))
cube = lambda: Game(Box(-1, 1, (5, 5, 5), np.float32))
wide = lambda: Game(Discrete(20_000))
nothing = lambda: Game(Dict())
idle = lambda: Game(VECTOR, Dict())
unbounded = lambda: Game(VECTOR, Box(-np.inf, np.inf, (2,), np.float32))
mixed = lambda: Game(VECTOR, Dict(a=Discrete(3), b=Box(-1, 1, (2,), np.float32)))
classes = lambda: Game(VECTOR, MultiDiscrete([2, 5]))
"""

SIZE = '--env.own.size'
CONVERT = ['--env.own.convert', 'True']
SOUND = [
    ('vector', []),
    ('number', []),
    ('mixed', []),
    ('classes', []),
    ('square', []),
    ('odd', []),
    ('flat', [SIZE, '0']),
    ('small', []),
    ('unequal', []),
    ('first_64', CONVERT),
    ('first_gray', CONVERT),
    ('cube', CONVERT),
    ('unbounded', ['--env.own.bound', '1.0']),
]
REFUSED = [
    ('first_64', [], 'channels first'),
    ('first_84', [], 'channels first'),
    ('first_gray', [], 'channels first'),
    ('first_stack', [], 'channels of several pictures first'),
    ('first_stack', CONVERT, 'channels of several pictures first'),
    ('first_64', [SIZE, '0'], 'channels first'),
    ('odd', [SIZE, '0'], '84x84'),
    ('odd', [SIZE, '40'], '40x40'),
    ('small', [SIZE, '0'], '16x16'),
    ('unequal', [SIZE, '0'], 'differ in size'),
    ('cube', [], 'neither an image'),
    ('wide', [], '20,000 classes'),
    ('nothing', [], 'no observation for the agent'),
    ('idle', [], 'no action for the agent'),
    ('unbounded', [], 'no finite bounds'),
]
CASES = [*((*case, '') for case in SOUND), *REFUSED]


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp('verdicts')
    (folder / 'my_games.py').write_text(MODULE)
    return folder


@pytest.mark.parametrize(
    'name, flags, words', CASES, ids=[' '.join((x, *flags)) for x, flags, _ in CASES]
)
def test_the_check_and_training_give_one_verdict(
    folder, name, flags, words, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    task = f'my_games:{name}'
    checked = main(['check-env', task, '--steps', '30', *flags])
    report = capsys.readouterr().out
    trained = main(train_command(task, tmp_path / 'run', flags))
    message = capsys.readouterr().err
    assert bool(checked) == bool(trained) == bool(words), (report, message)
    assert words in report and words in message


def train_command(task, logdir, flags):
    """Command of a run that makes its agent and ends before it would train."""
    options = {
        'logdir': logdir,
        'task': task,
        'run.steps': 4,
        'run.envs': 1,
        'run.env_processes': False,
        'run.save_every': 0,
        'run.report_every': 0,
        'logger.outputs': 'csv',
    }
    given = [f'--{name}={value}' for name, value in options.items()]
    return ['train', '--configs', 'debug', *given, *flags]
