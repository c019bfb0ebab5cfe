"""Planted faults are found, each by its own words, and sound environments have none."""

import re
import threading
import time

import elements
import numpy as np
import pytest
from python_versions import needs_dm_control

from dreamerv3.commands import check_env
from dreamerv3.main import main
from embodied import envs
from embodied.core.base import Env
from embodied.envs.checking import checker
from embodied.envs.spaces import act_spaces, make_obs, obs_spaces

IMAGE = elements.Space(np.uint8, (64, 64, 3))


class Sound(Env):
    """A walk of random length without any fault; faulty ones change one thing."""

    length = 12
    image = IMAGE
    action = elements.Space(np.float32, (2,), -1, 1)

    def __init__(self, seed=0):
        self.random = np.random.default_rng(seed)
        self.count = 0
        self.goal = 0

    @property
    def obs_space(self):
        vector = elements.Space(np.float32, (3,), -10, 10)
        return obs_spaces({'vector': vector, 'image': self.image})

    @property
    def act_space(self):
        return act_spaces({'action': self.action})

    def step(self, action):
        if action['reset']:
            self.count = 0
            self.goal = self.length + int(self.random.integers(5))
            return make_obs(self.look(), is_first=True)
        self.count += 1
        over = self.count >= self.goal
        return make_obs(self.look(), self.reward(), is_last=over, is_terminal=over)

    def reward(self):
        return 1.0

    def look(self):
        return {
            'vector': self.random.uniform(-1, 1, 3).astype(np.float32),
            'image': np.full(self.image.shape, self.count % 256, self.image.dtype),
        }


class LyingShape(Sound):
    def look(self):
        return {**super().look(), 'vector': np.zeros(4, np.float32)}


class LyingBounds(Sound):
    def look(self):
        return {**super().look(), 'vector': np.full(3, 11, np.float32)}


class FloatImage(Sound):
    def look(self):
        return {**super().look(), 'image': np.full(IMAGE.shape, self.count / 99.0)}


class MissingKey(Sound):
    def look(self):
        obs = super().look()
        return {'image': obs['image'], 'vectors': obs['vector']}


class NotANumber(Sound):
    def look(self):
        broken = np.nan if self.count == 9 else 0
        return {**super().look(), 'vector': np.full(3, broken, np.float32)}


class InfiniteReward(Sound):
    def reward(self):
        return np.inf


class TerminalLimit(Sound):
    length = 200

    def step(self, action):
        obs = super().step(action)
        self.goal = self.length
        return obs


class RewardOnReset(Sound):
    def step(self, action):
        obs = super().step(action)
        return {**obs, 'reward': np.float32(2)} if obs['is_first'] else obs


class Unseeded(Sound):
    def __init__(self, seed=0):
        super().__init__(None)


class OddImage(Sound):
    image = elements.Space(np.uint8, (84, 84, 3))


class ChannelsFirst(Sound):
    image = elements.Space(np.uint8, (3, 64, 64))


class FloatPicture(Sound):
    image = elements.Space(np.float32, (64, 64, 3))


class Unbounded(Sound):
    action = elements.Space(np.float32, (2,))


class NeverFirst(Sound):
    def step(self, action):
        return {**super().step(action), 'is_first': np.bool_(False)}


class TerminalInside(Sound):
    def step(self, action):
        return {**super().step(action), 'is_terminal': np.bool_(self.count == 5)}


class Restless(Sound):
    def step(self, action):
        obs = super().step(action)
        return {**obs, 'is_first': np.bool_(self.count % 4 == 0)}


class Reused(Sound):
    def __init__(self, seed=0):
        super().__init__(seed)
        self.buffer = np.zeros(3, np.float32)

    def look(self):
        self.buffer[:] = self.count / 100
        return {**super().look(), 'vector': self.buffer}


class Blind(Sound):
    def look(self):
        return {**super().look(), 'image': np.zeros(IMAGE.shape, np.uint8)}


class Endless(Sound):
    length = 10**6


class Crash(Sound):
    def reward(self):
        return 1 / (self.count - 7)


class Stutter(Sound):
    def reward(self):
        if self.count % 10 == 0:
            threading.Event().wait(0.25)
        return 1.0


class Slow(Sound):
    def reward(self):
        threading.Event().wait(0.25)
        return 1.0


class NoTuple(Sound):
    def step(self, action):
        return super().step(action), 0.0, False


class NoReset(Sound):
    act_space = {'action': Sound.action}


FAULTS = [
    (LyingShape, 'error', r"'vector'.*shape \(3,\).*\(4,\)"),
    (LyingBounds, 'error', r"'vector'.*to 10, got.*11"),
    (FloatImage, 'error', r"'image'.*uint8.*float64"),
    (MissingKey, 'error', r"lack the keys \['vector'\].*\['vectors'\]"),
    (NotANumber, 'error', r"'vector'.*NaN"),
    (InfiniteReward, 'error', r"'reward'.*infinity"),
    (TerminalLimit, 'error', r'after 200 steps.*time limit'),
    (RewardOnReset, 'error', r'first observation.*reward 2'),
    (NeverFirst, 'error', r'is_first=False'),
    (Restless, 'error', r'is_first is True in the middle'),
    (TerminalInside, 'error', r'is_terminal is True in a step that is not'),
    (Reused, 'error', r"\['vector'\] change after"),
    (Crash, 'error', r'ZeroDivisionError'),
    (NoTuple, 'error', r'returned a tuple'),
    (NoReset, 'error', r'lack reset'),
    (ChannelsFirst, 'error', r'channels first'),
    (FloatPicture, 'error', r'neither an image'),
    (Unseeded, 'warning', r"same seed differ in \['vector'\]"),
    (OddImage, 'warning', r'84 x 84'),
    (Unbounded, 'error', r"'action' has no finite bounds"),
    (Blind, 'warning', r"\['image'\] were the same"),
    (Stutter, 'warning', r'10 times as long'),
    (Slow, 'warning', r'steps per second'),
    (Endless, 'warning', r'had not ended'),
]
LIMITS = {Endless: 6000, Stutter: 40, Slow: 6}  # steps; 600 otherwise


@pytest.mark.parametrize(
    'kind, severity, words', FAULTS, ids=[kind.__name__ for kind, *_ in FAULTS]
)
def test_planted_faults_are_found(kind, severity, words):
    report = checker.check(kind, steps=LIMITS.get(kind, 600), seconds=60)
    first = report.findings[0]
    assert first.severity == severity
    text = ' '.join(finding.what for finding in report.findings)
    assert re.search(words, text), text
    assert all(finding.fix for finding in report.findings)


def test_one_fault_is_one_finding():
    cascades = (MissingKey, NeverFirst, Restless, TerminalInside, Slow)
    for kind, _, _ in FAULTS:
        if kind not in (*cascades, Stutter, Endless):
            report = checker.check(kind, steps=410, seconds=60)
            assert len(report.findings) == 1, (kind, report.findings)


def test_a_factory_that_cannot_travel_is_found():
    lock = threading.Lock()

    def make(seed):
        with lock:
            return Sound(seed)

    report = checker.check(make, steps=50)
    assert 'cannot be sent' in report.findings[0].what


def test_sound_environments_have_facts_but_no_findings():
    report = checker.check(Sound, steps=300)
    assert report.findings == []
    assert 'steps/s' in report.facts['speed']
    assert 'of 12 to 16 steps' in report.facts['episodes']


@pytest.mark.parametrize(
    'task, steps',
    [
        ('toy_catch', 500),
        ('toy_reach', 500),
        ('dummy_mixed', 500),
        ('gym_CartPole-v1', 500),
        ('gym:MountainCar-v0', 600),
        ('atari_pong', 300),
        ('atari100k_breakout', 600),
        pytest.param('dmc_cheetah_run', 300, marks=needs_dm_control),
        ('crafter_reward', 30),
        ('minigrid_Empty-5x5-v0', 150),
        ('bsuite_catch/0', 300),
        ('bsuite_bandit/0', 300),
        ('bsuite_cartpole_swingup/0', 100),
        ('bsuite_deep_sea_stochastic/0', 100),
    ],
)
def test_bundled_suites_have_no_faults(task, steps):
    report = check_env.check_task(task, steps, seconds=60)
    assert report.findings == []


def test_errors_come_before_warnings():
    class Both(OddImage):
        def reward(self):
            return np.nan

    report = checker.check(Both, steps=100)
    assert [finding.severity for finding in report.findings] == ['error', 'warning']


def test_play_stops_when_the_time_is_over():
    begin = time.monotonic()
    checker.check(Slow, steps=100_000, seconds=0.3)
    assert time.monotonic() - begin < 60


def test_the_command_prints_findings_with_what_to_do(tmp_path, monkeypatch, capsys):
    code = (
        'import gymnasium, numpy as np\n'
        'class Bad(gymnasium.Env):\n'
        '    observation_space = gymnasium.spaces.Box(0, 255, (84, 84, 3), np.uint8)\n'
        '    action_space = gymnasium.spaces.Discrete(2)\n'
        '    def reset(self, seed=None, options=None):\n'
        '        super().reset(seed=seed)\n'
        '        return np.zeros((84, 84, 3)), {}\n'
        '    def step(self, action):\n'
        '        return np.ones((84, 84, 3)), 0.0, False, True, {}\n'
        'def make_env():\n'
        '    return Bad()\n'
    )
    (tmp_path / 'my_checked_env.py').write_text(code)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert main(['check-env', 'my_checked_env:make_env', '--steps', '100']) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("error: Observation 'image'")
    assert lines[1] == '    Return images as uint8 from 0 to 255.'
    assert any(line.startswith("warning: Image 'image' is 84 x 84") for line in lines)
    assert main(['check-env', 'toy_catch', '--steps', '100']) == 0
    assert 'No faults found' in capsys.readouterr().out
    assert main(['check-env', 'toy_cach']) == 2


def test_tasks_of_the_checker_are_bare():
    bare = envs.registry.make_bare('gym_Pendulum-v1', 0)
    assert float(bare.act_space['action'].high[0]) == 2


def test_options_of_environments_are_those_of_training(tmp_path, monkeypatch, capsys):
    (tmp_path / 'my_unbounded_env.py').write_text(
        'import gymnasium\nimport numpy as np\n\n'
        'class Env(gymnasium.Env):\n'
        '    observation_space = gymnasium.spaces.Box(0, 1, (1,), np.float32)\n'
        '    action_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float32)\n'
        '    def reset(self, seed=None, options=None):\n'
        '        return np.zeros(1, np.float32), {}\n'
        '    def step(self, action):\n'
        '        return np.zeros(1, np.float32), 0.0, False, True, {}\n'
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    command = ['check-env', 'my_unbounded_env:Env', '--steps', '20']
    assert main(command) == 1
    assert '--env.own.bound' in capsys.readouterr().out
    assert main([*command, '--env.own.bound', '2']) == 0
