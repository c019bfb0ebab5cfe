"""DeepMind Lab: first-person 3D tasks, by the package `deepmind_lab`.

The package is built from its sources and cannot be installed by pip. This adapter is
written for its documented interface and tested against a stand-in of that.
"""

from collections.abc import Mapping
from typing import Any

import elements
import numpy as np

from ...core.base import Env, Spaces
from ..extras import require
from ..spaces import act_spaces, make_obs, obs_spaces

__all__ = ['DMLab']

IMAGE = 'RGB_INTERLEAVED'
PREFIX = 'contributed/dmlab30/'
LARGEST_SEED = 2**31 - 1
EVAL_MIXER = 0x600D5EED  # gives levels that training never sees

# Look right, look down, strafe right, forward, fire, jump, crouch; pixels for looking.
ACTIONS = (
    (0, 0, 0, 1, 0, 0, 0),
    (0, 0, 0, -1, 0, 0, 0),
    (0, 0, -1, 0, 0, 0, 0),
    (0, 0, 1, 0, 0, 0, 0),
    (-10, 0, 0, 0, 0, 0, 0),
    (10, 0, 0, 0, 0, 0, 0),
    (-60, 0, 0, 0, 0, 0, 0),
    (60, 0, 0, 0, 0, 0, 0),
    (0, 10, 0, 0, 0, 0, 0),
    (0, -10, 0, 0, 0, 0, 0),
    (-10, 0, 0, 1, 0, 0, 0),
    (10, 0, 0, 1, 0, 0, 0),
    (-60, 0, 0, 1, 0, 0, 0),
    (60, 0, 0, 1, 0, 0, 0),
    (0, 0, 0, 0, 1, 0, 0),
)


class DMLab(Env):
    """One level of DMLab-30, with 15 actions of `repeat` frames each.

    Levels last for a fixed time, so their ends are not terminal. Instructions in words
    are left out: tasks of language cannot be solved.

    action: int32 in 15. image: [size, size, 3] uint8.
    """

    def __init__(
        self,
        level: str,
        seed: int | None = None,
        size: int = 64,
        repeat: int = 4,
        holdout: bool = False,
    ) -> None:
        lab = require('deepmind_lab', 'dmlab')
        config = {'width': str(size), 'height': str(size)}
        if holdout:
            config['mixerSeed'] = str(EVAL_MIXER)
        self._env = lab.Lab(level=PREFIX + level, observations=[IMAGE], config=config)
        self._random = np.random.default_rng(seed)
        self._repeat = repeat
        self._image = np.zeros((size, size, 3), np.uint8)
        self._over = True

    @property
    def obs_space(self) -> Spaces:
        return obs_spaces({'image': elements.Space(np.uint8, self._image.shape)})

    @property
    def act_space(self) -> Spaces:
        return act_spaces({'action': elements.Space(np.int32, (), 0, len(ACTIONS))})

    def step(self, action: Mapping[str, Any]) -> dict[str, Any]:
        if action['reset'] or self._over:
            self._env.reset(seed=int(self._random.integers(LARGEST_SEED)))
            self._over = False
            return make_obs({'image': self._look()}, is_first=True)
        choice = np.array(ACTIONS[int(action['action'])], np.intc)
        reward = self._env.step(choice, num_steps=self._repeat)
        self._over = not self._env.is_running()
        # A level that is over shows nothing: the last image stands in.
        image = self._image if self._over else self._look()
        return make_obs({'image': image}, reward=float(reward), is_last=self._over)

    def close(self) -> None:
        self._env.close()

    def _look(self) -> np.ndarray:
        self._image = np.array(self._env.observations()[IMAGE])
        return self._image
