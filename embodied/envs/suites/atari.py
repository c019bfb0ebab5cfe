"""Atari games of the Arcade Learning Environment, with the usual preprocessing."""

import collections
import functools
import importlib
from collections.abc import Mapping
from typing import Any

import elements
import numpy as np
from PIL import Image

from ...core.base import Env, Spaces
from ...core.errors import ConfigError
from ..extras import require
from ..spaces import act_spaces, make_obs, obs_spaces

__all__ = ['Atari', 'atari100k']

STICKINESS = 0.25  # probability that a frame repeats the action before
LARGEST_SEED = 2**31 - 1  # of the emulator
NOOP = 0
ACTIONS = ('all', 'needed')
LIVES = ('unused', 'discount', 'reset')
RESIZE = {
    'bilinear': Image.Resampling.BILINEAR,
    'box': Image.Resampling.BOX,
    'nearest': Image.Resampling.NEAREST,
}


class Atari(Env):
    """One game, one action every `repeat` frames.

    The image is the maximum over the last `pooling` of those frames, because sprites
    flicker; after a reset it is the screen itself. Episodes begin with up to `noops`
    idle frames and end with the game or after `length` frames, in this case not
    terminally. Rewards are those of the game, unclipped.

    `lives` says what the loss of one does: nothing (`unused`), a discount of zero
    (`discount`), or the end of the episode, with the game going on (`reset`).

    action: int32, among all 18 or the needed ones. image: [size, size, 1 or 3] uint8.
    """

    def __init__(
        self,
        game: str,
        seed: int | None = None,
        size: int = 96,
        repeat: int = 4,
        pooling: int = 2,
        gray: bool = True,
        sticky: bool = True,
        noops: int = 30,
        actions: str = 'all',
        lives: str = 'unused',
        length: int = 108_000,
        resize: str = 'bilinear',
    ) -> None:
        _check_choice('actions', actions, ACTIONS)
        _check_choice('lives', lives, LIVES)
        _check_choice('resize', resize, tuple(RESIZE))
        if not 1 <= pooling <= repeat:
            raise ConfigError(
                f'Atari pools the last of the repeated frames: pooling={pooling} must '
                f'be from 1 to repeat={repeat}.'
            )
        self._random = np.random.default_rng(seed)
        self._ale = _emulator(game, int(self._random.integers(LARGEST_SEED)), sticky)
        self._choices = (
            self._ale.getLegalActionSet()
            if actions == 'all'
            else self._ale.getMinimalActionSet()
        )
        self._size = size
        self._repeat = repeat
        self._pooling = pooling
        self._gray = gray
        self._noops = noops
        self._lives_mode = lives
        self._length = length
        self._resize = RESIZE[resize]
        self._screens: collections.deque = collections.deque(maxlen=pooling)
        self._frames = 0
        self._lives = 0
        self._over = True
        self._goes_on = False  # The episode ended with a life, the game did not.

    @property
    def obs_space(self) -> Spaces:
        shape = (self._size, self._size, 1 if self._gray else 3)
        return obs_spaces({'image': elements.Space(np.uint8, shape)})

    @property
    def act_space(self) -> Spaces:
        return act_spaces(
            {'action': elements.Space(np.int32, (), 0, len(self._choices))}
        )

    def step(self, action: Mapping[str, Any]) -> dict[str, Any]:
        if action['reset'] or self._over:
            return self._begin(new_game=bool(action['reset']) and not self._over)
        reward = self._play(self._choices[int(action['action'])])
        dead = bool(self._ale.game_over())
        lost = self._ale.lives() < self._lives
        self._lives = self._ale.lives()
        self._goes_on = lost and not dead and self._lives_mode == 'reset'
        late = 0 < self._length <= self._frames
        self._over = dead or self._goes_on or late
        return make_obs(
            {'image': self._image()},
            reward=reward,
            is_last=self._over,
            is_terminal=dead or (lost and self._lives_mode != 'unused'),
        )

    def _begin(self, new_game: bool) -> dict[str, Any]:
        if new_game or not self._goes_on:
            self._frames = 0
            self._ale.reset_game()
            self._idle(int(self._random.integers(self._noops + 1)))
        else:
            self._idle(1)
        self._over = self._goes_on = False
        self._lives = self._ale.lives()
        screen = self._screen()
        self._screens.extend([screen] * self._pooling)
        return make_obs({'image': self._image()}, is_first=True)

    def _play(self, choice: Any) -> float:
        """Repeats the action; keeps the last screens."""
        reward = 0.0
        for frame in range(self._repeat):
            reward += self._ale.act(choice)
            self._frames += 1
            over = self._ale.game_over()
            if over or frame >= self._repeat - self._pooling:
                self._screens.append(self._screen())
            if over:
                break
        return reward

    def _idle(self, frames: int) -> None:
        for _ in range(frames):
            self._ale.act(NOOP)
            if self._ale.game_over():
                self._ale.reset_game()

    def _screen(self) -> np.ndarray:
        if self._gray:
            return self._ale.getScreenGrayscale()
        return self._ale.getScreenRGB()

    def _image(self) -> np.ndarray:
        screen = np.maximum.reduce(self._screens)
        image = Image.fromarray(screen).resize((self._size, self._size), self._resize)
        return np.asarray(image).reshape((self._size, self._size, -1))

    def save(self) -> Any:
        return {
            'emulator': self._ale.cloneState(include_rng=True),
            'random': self._random.bit_generator.state,
            'screens': list(self._screens),
            'counters': (self._frames, self._lives, self._over, self._goes_on),
        }

    def load(self, data: Any) -> None:
        self._ale.restoreState(data['emulator'])
        self._random.bit_generator.state = data['random']
        self._screens.extend(data['screens'])
        self._frames, self._lives, self._over, self._goes_on = data['counters']


# What the benchmark with 100,000 agent steps changes.
atari100k = functools.partial(
    Atari, size=64, gray=False, sticky=False, actions='needed'
)


def _emulator(game: str, seed: int, sticky: bool) -> Any:
    ale_py = require('ale_py', 'atari')
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    ale = ale_py.ALEInterface()
    ale.setInt('random_seed', seed)
    ale.setFloat('repeat_action_probability', STICKINESS if sticky else 0.0)
    roms = importlib.import_module('ale_py.roms')
    path = roms.get_rom_path(game)
    if path is None:
        raise ConfigError(
            f'The package ale_py {ale_py.__version__} has no game {game!r}.'
        )
    ale.loadROM(path)
    return ale


def _check_choice(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ConfigError(f'Atari has {name} {", ".join(allowed)}, not {value!r}.')
