"""Rows of members as arrays [N, ...]; what does not fit is named by its member."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import elements
import numpy as np

from ...core.base import Batch, Spaces
from ...core.errors import SpaceError
from ..spaces import describe
from .rows import FINAL, Final, Rows, split_final, to_host

__all__ = ['refuse_final', 'stack_members']

FINAL_FORM = (
    f'{FINAL!r} is a pair of member numbers [m] and rows, a dict of [m, ...] by key'
)


def stack_members(obs: Any, spaces: Spaces, members: int) -> Rows:
    """What a vector environment returned, with NumPy arrays [N, ...] by key.

    A key may also have a list or tuple with the value of each member.
    """
    if not isinstance(obs, Mapping):
        raise SpaceError(f'step() returned a {type(obs).__name__}, not a dict.')
    rows, final = _split(to_host(obs))
    stacked: Rows = _stack_rows('Observation', rows, spaces, np.arange(members))
    if final is not None:
        last = _stack_rows('Last observation', final.rows, spaces, final.members)
        stacked[FINAL] = final._replace(rows=last)
    return stacked


def refuse_final(final: Final, rows: Batch, members: int) -> None:
    """Raises unless these are last rows, of members whose other rows are first ones."""
    numbers = final.members
    valid = (
        numbers.ndim == 1
        and numbers.dtype.kind in 'iu'
        and len(np.unique(numbers)) == len(numbers)
        and 0 <= numbers.min() <= numbers.max() < members
    )
    if not valid:
        raise SpaceError(
            f"Rows under 'final' are those of different members from 0 to "
            f'{members - 1}, got the members {numbers.tolist()}.'
        )
    for flag, flags in (
        ('is_last', final.rows['is_last']),
        ('is_first', rows['is_first'][numbers]),
    ):
        wrong = numbers[~np.asarray(flags, bool).reshape(len(numbers))].tolist()
        if wrong:
            where = "row under 'final'" if flag == 'is_last' else 'row beside it'
            raise SpaceError(
                f"Rows under 'final' are the last ones (is_last) of members whose "
                f'other rows are the first ones (is_first). Expected {flag}=True, got '
                f'{flag}=False in the {where} of the members {wrong}.'
            )


def _split(obs: Mapping[str, Any]) -> tuple[Rows, Final | None]:
    final = obs.get(FINAL)
    if final is None:
        return split_final(obs)
    if not isinstance(final, tuple) or len(final) != 2:
        raise SpaceError(f'{FINAL_FORM}. Got a {type(final).__name__}.')
    if not isinstance(final[1], Mapping):
        raise SpaceError(f'{FINAL_FORM}. Got rows in a {type(final[1]).__name__}.')
    return split_final(obs)


def _stack_rows(
    what: str, rows: Mapping[str, Any], spaces: Spaces, members: np.ndarray
) -> Rows:
    return {
        key: _stack(f'{what} {key!r}', value, spaces.get(key), members)
        for key, value in rows.items()
    }


def _stack(
    name: str, value: Any, space: elements.Space | None, members: np.ndarray
) -> np.ndarray:
    """The values [n, ...] of one key of these members."""
    shape = getattr(value, 'shape', None)
    is_listed = isinstance(value, tuple) or (
        bool(shape) and value.dtype == object  # of arrays that could not be joined
    )
    count = len(value) if is_listed else (shape or (0,))[0]
    if count != len(members):
        got = f'a {type(value).__name__} of {count}' if is_listed else _describe(value)
        raise SpaceError(
            f'{name} of a vector environment needs one row per member: expected '
            f'{len(members)} rows of {_expected(space)}, got {got}. The attribute num '
            f"is the number of members; rows under 'final' are those of the members "
            f'that it names.'
        )
    if not is_listed:
        return value
    arrays = list(_as_arrays(value))
    wanted = arrays[0].shape if space is None else space.shape
    for member, array in zip(members, arrays, strict=True):
        castable = space is None or np.can_cast(array.dtype, space.dtype, 'same_kind')
        if array.shape != wanted or not castable:
            raise SpaceError(
                f'{name} of member {member} does not lie in its space: expected '
                f'{_expected(space)}, got {_describe(array)}.'
            )
    return np.stack(arrays)


def _expected(space: elements.Space | None) -> str:
    return describe(space) if space else 'one shape for all members'


def _as_arrays(values: Sequence[Any]) -> Iterator[np.ndarray]:
    """One array per value; ragged lists fit no space and become an object."""
    for value in values:
        try:
            yield np.asarray(value)
        except ValueError:
            yield np.asarray(None)


def _describe(value: Any) -> str:
    if not hasattr(value, 'dtype'):
        return f'a {type(value).__name__}'
    return f'{value.dtype.name} of shape {value.shape}'
