"""Spaces of functional libraries as ours, and values by key."""

from collections.abc import Mapping
from typing import Any

import elements
import numpy as np

from ....core.base import Spaces
from ....core.errors import SpaceError
from ...spaces import IMAGE_RANK

__all__ = ['is_picture', 'named', 'spaces_of']

SMALLEST_IMAGE = 16  # pixels per side; what is smaller is a grid of symbols


def spaces_of(space: Any, name: str = '') -> Spaces:
    """Spaces by key of a Discrete, Box or Dict in the form of gymnax.

    A plain space has the key `name`, by default `image` or `vector`.
    """
    if isinstance(getattr(space, 'spaces', None), Mapping):
        parts = [spaces_of(part, key) for key, part in space.spaces.items()]
        return {key: part for spaces in parts for key, part in spaces.items()}
    shape = tuple(space.shape)
    key = name or ('image' if is_picture(shape) else 'vector')
    dtype = np.dtype(space.dtype)
    if hasattr(space, 'n'):
        return {key: elements.Space(np.int32, shape, 0, int(space.n))}
    if not hasattr(space, 'low'):
        raise SpaceError(
            f'{key!r} is a {type(space).__name__} space, which agents cannot take. '
            f'Supported are Box, Discrete and Dict of these.'
        )
    low, high = (np.broadcast_to(x, shape) for x in (space.low, space.high))
    if dtype.kind == 'f':
        return {key: elements.Space(dtype, shape, low, high)}
    return {key: elements.Space(np.int32, shape, low.min(), high.max() + 1)}


def is_picture(shape: tuple[int, ...]) -> bool:
    """Whether an array has the rank of an image and is not too small for one."""
    return len(shape) == IMAGE_RANK and sorted(shape)[1] >= SMALLEST_IMAGE


def named(spaces: Spaces, value: Any) -> dict[str, Any]:
    """A plain value under the only key of `spaces`, a dict as it is."""
    return dict(value) if isinstance(value, Mapping) else {next(iter(spaces)): value}
