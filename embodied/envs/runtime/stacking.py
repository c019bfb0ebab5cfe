"""Rows: observations and actions of several environments, stacked and checked."""

from collections.abc import Mapping, Sequence
from typing import Any

import elements
import numpy as np

from ...core.base import Batch, Spaces
from ...core.errors import SpaceError
from ..spaces import describe, refuse_shared, same
from ..vector.member_rows import refuse_final, stack_members
from ..vector.rows import Final, split_final
from .host import EnvInfo

__all__ = ['check_infos', 'stack', 'take_members', 'zero_where']

NEEDED_OBS = {'reward', 'is_first', 'is_last', 'is_terminal'}


def stack(rows: Sequence[Mapping[str, Any]], spaces: Spaces) -> Batch:
    """Rows of one observation each as [N, ...] per key, in the declared dtypes."""
    stacked = {}
    for key in {**spaces, **rows[0]}:
        values = [row.get(key) for row in rows]
        space = spaces.get(key)
        if any(value is None for value in values):
            raise _misfit(key, space, values)
        try:
            array = np.array(values)
        except ValueError as error:  # shapes that differ
            raise _misfit(key, space, values) from error
        if space is not None and array.dtype != space.dtype:
            if not np.can_cast(array.dtype, space.dtype, 'same_kind'):
                raise _misfit(key, space, values)
            array = array.astype(space.dtype)
        if space is not None and array.shape[1:] != space.shape:
            raise _misfit(key, space, values)
        stacked[key] = array
    return stacked


def take_members(
    obs: Mapping[str, Any], spaces: Spaces, members: int
) -> tuple[Batch, Final | None]:
    """Rows of all members of a vector environment, and last rows beside them, in the
    declared dtypes."""
    rows, final = split_final(stack_members(obs, spaces, members))
    rows = {k: _as_declared(k, v, spaces.get(k), members) for k, v in rows.items()}
    _refuse_missing(rows, spaces)
    if final is None:
        return rows, None
    count = len(final.members)
    last = {k: _as_declared(k, v, spaces.get(k), count) for k, v in final.rows.items()}
    _refuse_missing(last, spaces)
    refuse_final(final._replace(rows=last), rows, members)
    return rows, final._replace(rows=last)


def _refuse_missing(rows: Batch, spaces: Spaces) -> None:
    missing = sorted(spaces.keys() - rows.keys())
    if missing:
        raise SpaceError(
            f'A vector environment left out the observations {missing}. It gave '
            f'{sorted(rows)}.'
        )


def _as_declared(
    key: str, value: np.ndarray, space: elements.Space | None, count: int
) -> np.ndarray:
    """The rows [count, ...] of one key."""
    shape = value.shape[1:] if space is None else space.shape
    dtype = value.dtype if space is None else space.dtype
    fits = np.can_cast(value.dtype, dtype, 'same_kind')
    if value.shape != (count, *shape) or not fits:
        raise SpaceError(
            f'Observations {key!r} of a vector environment do not fit: expected '
            f'{count} rows of {describe(space) if space else "any kind"}, got '
            f'{value.dtype} of shape {value.shape}.'
        )
    return value.astype(dtype, copy=False)


def _misfit(
    key: str, space: elements.Space | None, values: Sequence[Any]
) -> SpaceError:
    expected = describe(space) if space else 'the same shape everywhere'
    got = [
        'nothing' if x is None else f'{np.asarray(x).dtype} {np.shape(x)}'
        for x in values
    ]
    return SpaceError(
        f'Observations {key!r} of the environments do not fit: expected {expected}, '
        f'got {", ".join(sorted(set(got)))}.'
    )


def check_infos(infos: Sequence[EnvInfo]) -> None:
    """Raises unless all environments declare the same, complete spaces."""
    first = infos[0]
    missing = sorted(NEEDED_OBS - first.obs_space.keys())
    if missing or 'reset' not in first.act_space:
        raise SpaceError(
            f'Environments need {", ".join(sorted(NEEDED_OBS))} in obs_space (missing: '
            f'{missing}) and reset in act_space.'
        )
    refuse_shared(first.obs_space, first.act_space)
    if len({info.members > 0 for info in infos}) > 1:
        raise SpaceError(
            f'Either all environments of a run are vector environments or none is. '
            f'Got the members {[info.members for info in infos]}; 0 is a single one.'
        )
    for index, info in enumerate(infos):
        for ours, theirs in (
            (first.obs_space, info.obs_space),
            (first.act_space, info.act_space),
        ):
            differ = [
                k
                for k in {**ours, **theirs}
                if k not in ours or k not in theirs or not same(ours[k], theirs[k])
            ]
            if differ:
                raise SpaceError(
                    f'All environments of a run need the same spaces, but those of '
                    f'{index} differ from those of 0 in {sorted(differ)}.'
                )


def zero_where(rows: np.ndarray, values: np.ndarray) -> np.ndarray:
    """A copy of `values` [N, ...] with zeros in the rows that are true."""
    values = values.copy()
    values[rows] = 0
    return values
