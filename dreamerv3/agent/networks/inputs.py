"""Inputs: sorts observation and action keys by kind and checks that they fit."""

from collections.abc import Mapping, Sequence
from typing import Any

import elements
import numpy as np

from embodied.core.errors import ConfigError, SpaceError

__all__ = ['Inputs', 'flat_size', 'num_classes']

NOT_ENCODED = ('reward', 'is_first', 'is_last', 'is_terminal')
MAX_CLASSES = 10_000  # more would be a one-hot input wider than the network
SMALLEST_MAP = (3, 16)  # allowed sides of the last feature map


class Inputs:
    """Observation keys in sorted order, split in images and vectors.

    Images are uint8 arrays of rank 3; vectors everything else of rank <= 2.
    """

    def __init__(self, spaces: Mapping[str, elements.Space]):
        self.images: dict[str, elements.Space] = {}
        self.vectors: dict[str, elements.Space] = {}
        for name in sorted(spaces):
            if name in NOT_ENCODED:
                continue
            self._add(name, spaces[name])
        if not self.images and not self.vectors:
            raise SpaceError(
                'The environment has no observation for the agent: its space holds '
                f'only {sorted(spaces)}. Add at least one image or vector key.'
            )
        sides = {space.shape[:2] for space in self.images.values()}
        if len(sides) > 1:
            shapes = {name: space.shape for name, space in self.images.items()}
            raise SpaceError(
                f'Images are joined on their channels but differ in size: {shapes}. '
                'Resize them to one size: --env.own.size 64 (env.gym.size), or '
                'wrappers.ResizeImage.'
            )

    def _add(self, name: str, space: elements.Space) -> None:
        rank = len(space.shape)
        if space.dtype == np.uint8 and rank == 3:
            self.images[name] = space
        elif rank <= 2:
            if space.discrete:
                num_classes(name, space)
            self.vectors[name] = space
        else:
            raise SpaceError(
                f"Observation '{name}' is {space}: arrays of rank {rank} are only "
                'understood as images, which are uint8 of rank 3. Flatten it to rank '
                '2 or less, or convert it to uint8.'
            )

    @property
    def channels(self) -> int:
        return sum(space.shape[-1] for space in self.images.values())

    @property
    def image_size(self) -> tuple[int, int]:
        return next(iter(self.images.values())).shape[:2]

    @property
    def vector_size(self) -> int:
        return sum(flat_size(name, space) for name, space in self.vectors.items())

    def classes(self, name: str) -> int:
        return num_classes(name, self.vectors[name])

    def lead_rank(self, obs: Mapping[str, Any]) -> int:
        """Number of batch axes in front of the spaces' own shapes."""
        name = next(iter(obs))
        space = self.images.get(name) or self.vectors[name]
        return obs[name].ndim - len(space.shape)

    def smallest_map(self, mults: Sequence[int]) -> tuple[int, int]:
        """Sides of the image after one halving per stage."""
        factor = 2 ** len(mults)
        height, width = self.image_size
        low, high = SMALLEST_MAP
        sides = (height // factor, width // factor)
        divides = height % factor == 0 and width % factor == 0
        if not divides or min(sides) < low or max(sides) > high:
            raise ConfigError(
                f'Images of {height}x{width} do not fit {len(mults)} stages '
                f'(agent.enc.mults={tuple(mults)}): sides must divide by {factor} and '
                f'leave a map of {low} to {high} pixels. Use another image size, such '
                'as --env.own.size 64 (env.gym.size), or fewer or more mults in '
                'agent.enc and agent.dec (16x16 images: two).'
            )
        return sides


def num_classes(name: str, space: elements.Space) -> int:
    """Classes of a discrete space; the largest where its elements differ."""
    if np.any(np.asarray(space.low) != 0):
        raise SpaceError(
            f"'{name}' is {space}: discrete values must start at 0. Shift them in the "
            'environment.'
        )
    count = 2 if space.dtype == bool else _count_integers(space)
    if not 1 <= count <= MAX_CLASSES:
        raise SpaceError(
            f"'{name}' is {space} with {count:,} classes: discrete values become "
            f'one-hot inputs, so at most {MAX_CLASSES:,} are allowed. Declare bounds '
            'for it, or make it a float.'
        )
    return count


def _count_integers(space: elements.Space) -> int:
    # In Python integers, because the bounds of wide dtypes overflow their own type.
    high = int(np.max(space.high))
    # Bounds are exclusive, but one left open is the largest value of the dtype itself.
    return high + 1 if high == np.iinfo(space.dtype).max else high


def flat_size(name: str, space: elements.Space) -> int:
    """Numbers that the space turns into: one-hot classes or the values themselves."""
    count = int(np.prod(space.shape, dtype=np.int64))
    return count * num_classes(name, space) if space.discrete else count
