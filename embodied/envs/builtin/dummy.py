"""Dummy environment: every kind of observation and action, nothing to learn."""

from collections.abc import Mapping
from typing import Any

import elements
import numpy as np

from ...core.base import Env, Spaces
from ...core.errors import ConfigError
from ..spaces import act_spaces, make_obs, obs_spaces

__all__ = ['Dummy']

TOKENS = 256
CLASSES = 4
TASKS = {  # action keys of each task
    'disc': ('act_disc',),
    'cont': ('act_cont',),
    'mixed': ('act_disc', 'act_cont', 'act_multi'),
}


class Dummy(Env):
    """Counts steps and shows the count in every key; each step is worth 1.

    Episodes end after `length` steps, terminally.
    """

    def __init__(
        self, task: str, size: int | tuple[int, int] = (64, 64), length: int = 100
    ) -> None:
        if task not in TASKS:
            raise ConfigError(f'Dummy has the tasks {", ".join(TASKS)}, not {task!r}.')
        if length < 1:
            raise ConfigError(f'Dummy needs length >= 1, got {length}.')
        self._task = task
        self._size = (size, size) if isinstance(size, int) else tuple(size)
        self._length = length
        self._count = 0
        self._over = True

    @property
    def obs_space(self) -> Spaces:
        return obs_spaces(
            {
                'image': elements.Space(np.uint8, (*self._size, 3)),
                'vector': elements.Space(np.float32, (7,)),
                'token': elements.Space(np.int32, (), 0, TOKENS),
                'count': elements.Space(np.float32, (), 0, self._length),
                'float2d': elements.Space(np.float32, (4, 5)),
                'int2d': elements.Space(np.int32, (2, 3), 0, CLASSES),
            }
        )

    @property
    def act_space(self) -> Spaces:
        spaces = {
            'act_disc': elements.Space(np.int32, (), 0, 5),
            'act_cont': elements.Space(np.float32, (6,), -1, 1),
            'act_multi': elements.Space(np.int32, (3,), 0, 4),
        }
        return act_spaces({k: spaces[k] for k in TASKS[self._task]})

    def step(self, action: Mapping[str, Any]) -> dict[str, Any]:
        if action['reset'] or self._over:
            self._count = 0
            self._over = False
            return make_obs(self._render(), is_first=True)
        self._count += 1
        self._over = self._count >= self._length
        return make_obs(
            self._render(), reward=1.0, is_last=self._over, is_terminal=self._over
        )

    def _render(self) -> dict[str, Any]:
        count = self._count
        return {
            'image': np.full((*self._size, 3), count % 256, np.uint8),
            'vector': np.full(7, count / self._length, np.float32),
            'token': np.int32(count % TOKENS),
            'count': np.float32(count),
            'float2d': np.full((4, 5), count, np.float32),
            'int2d': np.full((2, 3), count % CLASSES, np.int32),
        }

    def save(self) -> Any:
        return {'count': self._count, 'over': self._over}

    def load(self, data: Any) -> None:
        self._count = data['count']
        self._over = data['over']
