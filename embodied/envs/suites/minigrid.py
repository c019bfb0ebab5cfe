"""MiniGrid: small rooms with keys, doors and lava, seen from where the player is."""

from typing import Any

from ..adapters.from_gym import FromGym
from ..extras import require
from ..registry import adjust

__all__ = ['make_minigrid']

TILE = 8  # pixels per cell of the 7 x 7 that the player sees


def make_minigrid(name: str, seed: int | None = None, size: int = 64) -> Any:
    """The task `MiniGrid-<name>` as an image, plus the direction of the player.

    The mission is a text, which agents cannot read, and is left out: tasks in which it
    says what to do cannot be solved. Time limits are those of the task.

    action: int32 in 7. direction: int32 in 4. image: [size, size, 3] uint8.
    """
    gymnasium = require('gymnasium', 'minigrid')
    wrappers = require('minigrid', 'minigrid').wrappers

    def make(**kwargs: Any) -> Any:
        env = gymnasium.make(f'MiniGrid-{name}', **kwargs)
        env = wrappers.RGBImgPartialObsWrapper(env, tile_size=TILE)
        return gymnasium.wrappers.FilterObservation(env, ['image', 'direction'])

    return adjust(FromGym(make, seed=seed, disable_env_checker=True), size=size)
