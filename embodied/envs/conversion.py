"""Conversion: wrappers that bring odd spaces into a form that agents take."""

from typing import Any

import elements
import numpy as np

from ..core import step_keys
from ..core.base import Spaces
from ..core.errors import ConfigError
from .spaces import IMAGE_RANK, Checker, is_image
from .wrappers import Wrapper

__all__ = [
    'BoundAction',
    'Conversion',
    'ConvertArrays',
    'conversions_of',
    'is_channels_first',
]

CHANNELS = (1, 3, 4)


def is_channels_first(shape: tuple[int, ...]) -> bool:
    """Whether [a, b, c] looks like [channels, height, width]."""
    return shape[0] in CHANNELS and shape[-1] not in CHANNELS


class BoundAction(Wrapper):
    """Gives -bound and bound to directions of continuous actions that have none."""

    def __init__(self, env: Any, bound: float) -> None:
        super().__init__(env)
        if not (np.isfinite(bound) and bound > 0):
            raise ConfigError(f'BoundAction needs a finite bound above 0, got {bound}.')
        self._bound = bound

    @property
    def act_space(self) -> Spaces:
        spaces = self.env.act_space
        return {k: self._bounded(v) for k, v in spaces.items()}

    def _bounded(self, space: elements.Space) -> elements.Space:
        if space.dtype.kind != 'f':
            return space
        low = np.where(np.isfinite(space.low), space.low, -self._bound)
        high = np.where(np.isfinite(space.high), space.high, self._bound)
        return elements.Space(space.dtype, space.shape, low, high)


class ConvertArrays(Wrapper):
    """Turns arrays of rank 3 and more into images or vectors.

    Pictures become uint8 [height, width, channels]: those with the channels first are
    transposed, floats with finite bounds are scaled from these to 0..255. An array is a
    picture if its first or last axis has 1, 3 or 4 entries. Anything else of rank 3 or
    more is flattened. Values that do not lie in their space pass unchanged, for
    `CheckSpaces` to name them.
    """

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self._conversions = conversions_of(env.obs_space)

    @property
    def obs_space(self) -> Spaces:
        converted = {k: x.space for k, x in self._conversions.items()}
        return {**self.env.obs_space, **converted}

    def change_obs(self, obs: dict[str, Any]) -> dict[str, Any]:
        return {**obs, **{k: x(obs[k]) for k, x in self._conversions.items()}}


class Conversion:
    """How the values of one key are converted, and their `space` afterwards."""

    def __init__(self, space: elements.Space) -> None:
        shape = space.shape
        self._rank = len(shape)
        self._check = Checker(space)
        self._picture = len(shape) == IMAGE_RANK and _is_picture(space)
        self._first = self._picture and is_channels_first(shape)
        self._low = np.asarray(space.low, np.float64)
        self._range = np.asarray(space.high, np.float64) - self._low
        self._scaled = self._picture and space.dtype.kind == 'f'
        if self._picture:
            height_width_channels = (*shape[1:], shape[0]) if self._first else shape
            self.space = elements.Space(np.uint8, height_width_channels)
        else:
            low, high = space.low.reshape(-1), space.high.reshape(-1)
            self.space = elements.Space(space.dtype, low.shape, low, high)

    def __call__(self, value: Any) -> np.ndarray:
        value = np.asarray(value)
        lead = value.ndim - self._rank  # 1 for the members of a vector environment
        if not self._check.fits(value, len(value) if lead == 1 else None):
            return value
        return self.apply(value, lead)

    def apply(self, value: Any, lead: int = 0, xp: Any = np) -> Any:
        """Converts values that lie in their space.

        lead: number of leading dimensions. xp: the module of the arrays, NumPy or
        jax.numpy.
        """
        if not self._picture:
            return value.reshape(*value.shape[:lead], -1)
        if self._scaled:
            share = (value - self._low) / self._range
            value = xp.rint(255 * xp.clip(share, 0, 1)).astype(np.uint8)
        return xp.moveaxis(value, lead, -1) if self._first else value


def conversions_of(spaces: Spaces) -> dict[str, Conversion]:
    """Conversions of the keys that agents do not take as they are."""
    return {
        key: Conversion(space)
        for key, space in spaces.items()
        if not step_keys.is_log(key) and _is_odd(space)
    }


def _is_odd(space: elements.Space) -> bool:
    if len(space.shape) < IMAGE_RANK:
        return False
    return not is_image(space) or is_channels_first(space.shape)


def _is_picture(space: elements.Space) -> bool:
    channels = space.shape[0] in CHANNELS or space.shape[-1] in CHANNELS
    if space.dtype == np.uint8:
        return channels
    finite = np.isfinite(space.low).all() and np.isfinite(space.high).all()
    return bool(channels and space.dtype.kind == 'f' and finite)
