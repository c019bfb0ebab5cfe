"""ProcGen: 16 games whose levels are generated, so that none is seen twice."""

from collections.abc import Mapping
from typing import Any

import elements
import numpy as np
from PIL import Image

from ...core.base import Env, Spaces
from ..extras import require
from ..spaces import act_spaces, make_obs, obs_spaces

__all__ = ['ProcGen']

NATIVE = 64  # pixels per side of what the games show to agents
LARGEST_SEED = 2**31 - 1
ABANDON = -1  # the action that ends a game


class ProcGen(Env):
    """One game; `levels` is the number of different ones, 0 for no end of them.

    Games end terminally. They draw images of 64 x 64; for other sizes their large
    picture for people is shrunk, which shows more.

    action: int32 in 15. image: [size, size, 3] uint8.
    """

    def __init__(
        self,
        game: str,
        seed: int | None = None,
        size: int = 96,
        levels: int = 0,
        start: int = 0,
        mode: str = 'hard',
    ) -> None:
        procgen = require('procgen', 'procgen')
        random = 0 if seed is None else seed % LARGEST_SEED
        self._large = size != NATIVE
        self._env = procgen.ProcgenGym3Env(
            num=1,
            env_name=game,
            num_levels=levels,
            start_level=start,
            distribution_mode=mode,
            rand_seed=random,
            render_mode='rgb_array' if self._large else None,
        )
        self._size = size
        self._over = True
        self._fresh = True  # No action was taken in the game that is shown.
        self._image = np.zeros((size, size, 3), np.uint8)

    @property
    def obs_space(self) -> Spaces:
        shape = (self._size, self._size, 3)
        return obs_spaces({'image': elements.Space(np.uint8, shape)})

    @property
    def act_space(self) -> Spaces:
        count = self._env.ac_space.eltype.n
        return act_spaces({'action': elements.Space(np.int32, (), 0, count)})

    def step(self, action: Mapping[str, Any]) -> dict[str, Any]:
        if action['reset'] or self._over:
            return self._begin()
        self._env.act(np.array([action['action']], np.int32))
        reward, _, first = self._env.observe()
        self._over = self._fresh = bool(first[0])
        if not self._over:
            self._image = self._look()
        # At its end the game shows the next one already; the last image stands in.
        return make_obs(
            {'image': self._image},
            reward=float(reward[0]),
            is_last=self._over,
            is_terminal=self._over,
        )

    def close(self) -> None:
        self._env.close()

    def _begin(self) -> dict[str, Any]:
        if not self._fresh:
            self._env.act(np.array([ABANDON], np.int32))
        self._over = self._fresh = False
        self._image = self._look()
        return make_obs({'image': self._image}, is_first=True)

    def _look(self) -> np.ndarray:
        if not self._large:
            return np.array(self._env.observe()[1]['rgb'][0])
        picture = Image.fromarray(self._env.get_info()[0]['rgb'])
        size = (self._size, self._size)
        return np.asarray(picture.resize(size, Image.Resampling.BILINEAR))
