"""DeepMind Control Suite: MuJoCo tasks from joint positions, from pixels, or both."""

from collections.abc import Mapping
from typing import Any

import elements
import numpy as np

from ...core.base import Spaces
from ...core.errors import ConfigError
from ..adapters.from_dm import FromDM
from ..extras import check
from ..wrappers import ActionRepeat, Wrapper
from . import rendering

__all__ = ['DMC']

LARGEST_SEED = 2**32 - 1
CAMERAS = {'quadruped': 2}  # where camera 0 does not show the body


class DMC(Wrapper):
    """The task `<domain>_<task>`.

    With `proprio` the observations are those of the suite, with `image` there is a
    picture of the `camera` (-1: the usual one of the domain). Without images nothing
    is loaded that draws. Episodes last 1000 steps, before the action repeat, and do
    not end terminally.
    """

    def __init__(
        self,
        task: str,
        seed: int | None = None,
        size: int = 64,
        repeat: int = 1,
        proprio: bool = True,
        image: bool = False,
        camera: int = -1,
    ) -> None:
        if not proprio and not image:
            raise ConfigError(
                'A DMC task without observations: set env.dmc.proprio or '
                'env.dmc.image to True.'
            )
        check('dm_control', 'dmc')
        suite = rendering.load('dm_control.suite', draws=image)
        domain = _domain(task, suite)
        random = None if seed is None else seed % LARGEST_SEED
        env = suite.load(
            domain, task.removeprefix(f'{domain}_'), task_kwargs={'random': random}
        )
        super().__init__(FromDM(env))
        if repeat != 1:
            self.env = ActionRepeat(self.env, repeat)
        self._physics = env.physics
        self._proprio = proprio
        self._size = size
        self._camera = CAMERAS.get(domain, 0) if camera == -1 else camera
        self._image = image

    @property
    def obs_space(self) -> Spaces:
        shape = (self._size, self._size, 3)
        image = {'image': elements.Space(np.uint8, shape)} if self._image else {}
        return {**image, **self._kept(self.env.obs_space)}

    def step(self, action: Mapping[str, Any]) -> dict[str, Any]:
        obs = self._kept(self.env.step(action))
        return {**obs, 'image': self._render()} if self._image else obs

    def _kept(self, values: Mapping[str, Any]) -> dict[str, Any]:
        common = ('reward', 'is_first', 'is_last', 'is_terminal')
        return {k: v for k, v in values.items() if self._proprio or k in common}

    def _render(self) -> np.ndarray:
        return self._physics.render(self._size, self._size, camera_id=self._camera)


def _domain(task: str, suite: Any) -> str:
    """Domains have underscores in their names, too."""
    for domain, name in suite.ALL_TASKS:
        if task == f'{domain}_{name}':
            return domain
    raise ConfigError(f'The installed dm_control has no task {task!r}.')
