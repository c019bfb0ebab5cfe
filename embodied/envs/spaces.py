"""Spaces of environments: the common keys, what fits them and how that is said.

Integers reach from `low` to one below `high`. Bounds that were inferred from the
dtype reach to its largest value, because `elements.Space` infers them that way.
"""

from collections.abc import Mapping
from typing import Any

import elements
import numpy as np

from ..core.base import Env, Spaces
from ..core.errors import SpaceError

__all__ = [
    'Checker',
    'FixedSpaces',
    'KnownSpaces',
    'act_spaces',
    'describe',
    'is_image',
    'make_obs',
    'obs_spaces',
    'refuse_shared',
    'same',
    'unify',
]

IMAGE_RANK = 3
# Replay adds `stepid` and `consec` to every batch.
RESERVED = (
    'reward',
    'is_first',
    'is_last',
    'is_terminal',
    'reset',
    'stepid',
    'consec',
)


class KnownSpaces:
    """Spaces of an environment that has found them out: `_obs_space`, `_act_space`."""

    _obs_space: Spaces
    _act_space: Spaces

    @property
    def obs_space(self) -> Spaces:
        return dict(self._obs_space)

    @property
    def act_space(self) -> Spaces:
        return dict(self._act_space)


class FixedSpaces(KnownSpaces, Env):
    """A single environment that has found out its spaces."""


def obs_spaces(task: Spaces) -> Spaces:
    """The task's keys plus reward, is_first, is_last and is_terminal."""
    _refuse_names(task, 'Observation')
    flag = elements.Space(bool)
    return {
        **task,
        'reward': elements.Space(np.float32),
        'is_first': flag,
        'is_last': flag,
        'is_terminal': flag,
    }


def act_spaces(task: Spaces) -> Spaces:
    """The task's actions plus reset."""
    _refuse_names(task, 'Action')
    return {**task, 'reset': elements.Space(bool)}


def make_obs(
    task: Mapping[str, Any],
    reward: float = 0.0,
    is_first: bool = False,
    is_last: bool = False,
    is_terminal: bool = False,
) -> dict[str, Any]:
    """The task's values plus the common keys in their dtypes."""
    return {
        **task,
        'reward': np.float32(reward),
        'is_first': np.bool_(is_first),
        'is_last': np.bool_(is_last),
        'is_terminal': np.bool_(is_terminal),
    }


def is_image(space: elements.Space) -> bool:
    """Whether agents treat values of the space as images [H, W, C]."""
    return space.dtype == np.uint8 and len(space.shape) == IMAGE_RANK


def unify(space: elements.Space) -> elements.Space:
    """The space with float32 for floats and int32 for integers but uint8."""
    if space.dtype.kind == 'f':
        # Bounds are rounded like the values, so that values stay within them.
        low, high = np.float32(space.low), np.float32(space.high)
        return elements.Space(np.float32, space.shape, low, high)
    if space.dtype.kind in 'iu' and space.dtype != np.uint8:
        info = np.iinfo(np.int32)
        low = np.clip(space.low, info.min, info.max)
        high = np.clip(space.high, info.min, info.max)
        return elements.Space(np.int32, space.shape, low, high)
    return space


def same(a: elements.Space, b: elements.Space) -> bool:
    """Whether two spaces hold the same values."""
    return (
        a.dtype == b.dtype
        and a.shape == b.shape
        and np.array_equal(a.low, b.low)
        and np.array_equal(a.high, b.high)
    )


def refuse_shared(obs: Spaces, act: Spaces) -> None:
    """Raises when observations and actions, stored side by side, share names."""
    shared = sorted(obs.keys() & act.keys())
    if shared:
        raise SpaceError(
            f'Observations and actions share the keys {shared}, but are stored side '
            f'by side. Rename one of each (adapters take obs_key and act_key).'
        )


def describe(space: elements.Space) -> str:
    """The space in words, as in `float32 of shape (7,) from -1 to 1`."""
    text = f'{space.dtype.name} of shape {space.shape}'
    if space.dtype.kind not in 'fiu' or not _bounded(space):
        return text
    return f'{text} from {space.low.min():g} to {_largest(space).max():g}'


class Checker:
    """Finds out whether values lie in one space, fast when they do."""

    def __init__(self, space: elements.Space) -> None:
        self._space = space
        self._kind = space.dtype.kind
        self._bounded = self._kind in 'fiu' and _bounded(space)
        if self._bounded:
            # A float32 may exceed a float64 bound that it equals after rounding.
            self._low = space.low.astype(space.dtype)
            self._high = _largest(space).astype(space.dtype)

    def fits(self, value: Any, rows: int | None = None) -> bool:
        """Whether dtype, shape, range and finiteness are right.

        rows: number of values in an array of them; None: it is one value. Python
        scalars have no dtype of their own; a suitable kind is enough.
        """
        if type(value) in (bool, int, float):
            value = np.asarray(value)
            if not np.can_cast(value.dtype, self._space.dtype, 'same_kind'):
                return False
        elif getattr(value, 'dtype', None) != self._space.dtype:
            return False
        shape = self._space.shape
        if value.shape != (shape if rows is None else (rows, *shape)):
            return False
        if self._kind == 'f' and not np.isfinite(value).all():
            return False
        if not self._bounded:
            return True
        return bool((value >= self._low).all() and (value <= self._high).all())

    def error(self, name: str, value: Any) -> SpaceError:
        """The error for a value that does not fit, called `name` in the message."""
        return SpaceError(
            f'{name} does not lie in its space: expected {describe(self._space)}, '
            f'got {_describe_value(value)}.'
        )


def _bounded(space: elements.Space) -> bool:
    """Whether some bound is narrower than what the dtype can hold."""
    if space.dtype.kind == 'f':
        return bool(np.isfinite(space.low).any() or np.isfinite(space.high).any())
    info = np.iinfo(space.dtype)
    return bool((space.low > info.min).any() or (space.high < info.max).any())


def _largest(space: elements.Space) -> np.ndarray:
    """The largest allowed values; `high` of integers is one above, unless inferred."""
    if space.dtype.kind == 'f':
        return space.high
    largest = np.iinfo(space.dtype).max
    return np.where(space.high > largest - 1, largest, space.high - 1)


def _describe_value(value: Any) -> str:
    array = np.asarray(value)
    text = f'{array.dtype.name} of shape {array.shape}'
    if array.dtype.kind not in 'fiu' or not array.size:
        return text
    if not np.isfinite(array).all():
        bad = ', '.join(
            name
            for name, found in (('NaN', np.isnan(array)), ('infinity', np.isinf(array)))
            if found.any()
        )
        return f'{text} containing {bad}'
    return f'{text} from {array.min():g} to {array.max():g}'


def _refuse_names(task: Spaces, what: str) -> None:
    clashes = sorted(set(task) & set(RESERVED))
    if clashes:
        raise SpaceError(
            f'{what} keys {clashes} have names that every environment uses for '
            f'itself ({", ".join(RESERVED)}). Rename them.'
        )
