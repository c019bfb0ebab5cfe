"""Stand-ins of packages that cannot be installed here: as little as adapters use."""

import sys
import types
from typing import Any

import numpy as np


class Lab:
    """`deepmind_lab.Lab`: a level of five frames, worth 1 each."""

    def __init__(self, level, observations, config):
        self.about = {'level': level, 'observations': observations, 'config': config}
        self.size = int(config['height']), int(config['width'])
        self.frame = 0
        self.seeds = []
        self.actions = []

    def reset(self, seed):
        self.seeds.append(seed)
        self.frame = 0

    def is_running(self):
        return self.frame < 5

    def observations(self):
        assert self.is_running(), 'no observations after the end'
        return {'RGB_INTERLEAVED': np.full((*self.size, 3), self.frame, np.uint8)}

    def step(self, action, num_steps):
        assert action.dtype == np.intc and action.shape == (7,)
        self.actions.append(action.tolist())
        played = min(num_steps, 5 - self.frame)
        self.frame += played
        return float(played)

    def close(self):
        pass


class Games:
    """`procgen.ProcgenGym3Env`: games of three steps, worth 1, 2 and 3.

    As in gym3, the observation after the last step is the first of the next game.
    """

    def __init__(self, num, env_name, render_mode, **settings):
        assert num == 1
        self.settings = {'env_name': env_name, **settings}
        self.large = render_mode == 'rgb_array'
        self.ac_space = types.SimpleNamespace(eltype=types.SimpleNamespace(n=15))
        self.game, self.count, self.reward, self.first = 0, 0, 0.0, True

    def observe(self):
        image = np.full((1, 64, 64, 3), self._value(), np.uint8)
        return np.array([self.reward]), {'rgb': image}, np.array([self.first])

    def get_info(self):
        assert self.large
        return [{'rgb': np.full((512, 512, 3), self._value(), np.uint8)}]

    def act(self, actions):
        assert actions.shape == (1,)
        self.count += 1
        self.reward = float(self.count)
        self.first = self.count == 3 or actions[0] == -1
        if self.first:
            self.game, self.count = self.game + 1, 0

    def _value(self):
        return 10 * self.game + self.count

    def close(self):
        pass


class World:
    """What `EnvSpec.make` of minerl returns; `script` are inventories and lives."""

    def __init__(self, spec):
        self.spec = spec
        self.script: list[tuple[dict, float]] = []
        self.commands: list[dict[str, Any]] = []
        self.seeds: list[int] = []
        noop = {'attack': 0, 'jump': 0, 'forward': 0, 'camera': np.zeros(2)}
        self.action_space = types.SimpleNamespace(noop=lambda: dict(noop))

    def seed(self, seed):
        self.seeds.append(seed)

    def reset(self):
        return self._obs({}, 20)

    def step(self, command):
        self.commands.append(command)
        inventory, life = self.script.pop(0) if self.script else ({}, 20)
        return self._obs(inventory, life), 0.0, False, {}

    def _obs(self, inventory, life):
        return {
            'pov': np.zeros((64, 64, 3), np.uint8),
            'inventory': {k: np.array(v) for k, v in inventory.items()},
            'life_stats': {'life': np.array(life), 'food': np.array(20)},
        }

    def close(self):
        pass


class Handler:
    """Any handler of minerl: keeps what it was made with."""

    def __init__(self, *args, **kwargs):
        self.args, self.kwargs = args, kwargs


class Handlers:
    def __getattr__(self, name):
        return type(name, (Handler,), {})


class EnvSpec:
    def __init__(self, name, max_episode_steps):
        self.name = name

    def make(self):
        for part in ('observables', 'actionables', 'agent_start'):
            assert getattr(self, f'create_{part}')()
        return World(self)


def module(name, **content):
    made = types.ModuleType(name)
    made.__spec__ = types.SimpleNamespace(name=name)  # looked at by find_spec
    vars(made).update(content)
    return made


def install(monkeypatch):
    """Puts the stand-ins where imports find them."""
    hero = module(
        'minerl.herobraine.hero',
        handlers=Handlers(),
        handler=types.SimpleNamespace(Handler=Handler),
        mc=types.SimpleNamespace(ALL_ITEMS=['log', 'planks']),
    )
    for made in (
        module('deepmind_lab', Lab=Lab),
        module('procgen', ProcgenGym3Env=Games),
        module('minerl'),
        module('minerl.herobraine'),
        module('minerl.herobraine.env_spec', EnvSpec=EnvSpec),
        hero,
    ):
        monkeypatch.setitem(sys.modules, made.__name__, made)
