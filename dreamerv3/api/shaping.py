"""Shaping: what a user hands in, single or batched, as batches of the right types."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from embodied.core.base import Batch, Spaces
from embodied.core.errors import SpaceError

__all__ = ['batched']


def batched(values: Mapping[str, Any], spaces: Spaces, axes: int) -> tuple[Batch, bool]:
    """The keys of `spaces` as arrays with `axes` axes in front of their own shapes.

    Values may lack the first of these axes; then it is added, which is the second
    result.
    """
    missing = [name for name in spaces if name not in values]
    if missing:
        known = ', '.join(f'{k} {x.dtype.name}{x.shape}' for k, x in spaces.items())
        raise SpaceError(f'Missing: {", ".join(missing)}. All that is needed: {known}.')
    arrays = {name: _convert(name, values[name], x) for name, x in spaces.items()}
    leads = {name: x.ndim - len(spaces[name].shape) for name, x in arrays.items()}
    if len(set(leads.values())) > 1 or set(leads.values()) - {axes - 1, axes}:
        shapes = {name: x.shape for name, x in arrays.items()}
        raise SpaceError(
            f'Each key needs {axes - 1} axes in front of its own shape, or {axes} for '
            f'a batch, all of them the same. Got {shapes} for '
            f'{ ({name: space.shape for name, space in spaces.items()}) }.'
        )
    single = leads.popitem()[1] < axes
    return {k: v[None] if single else v for k, v in arrays.items()}, single


def _convert(name: str, value: Any, space: Any) -> np.ndarray:
    array = np.asarray(value)
    if not np.can_cast(array.dtype, space.dtype, 'same_kind'):
        raise SpaceError(
            f"'{name}' is of type {array.dtype}, but {space.dtype} is expected."
        )
    lead = max(0, array.ndim - len(space.shape))
    if array.shape[lead:] != space.shape:
        raise SpaceError(
            f"'{name}' has shape {array.shape}, which must end in {space.shape}."
        )
    return array.astype(space.dtype, copy=False)
