"""Batch transfer: a batch on its way to a device, with its small arrays as one.

A transfer costs the host the same for four kilobytes as for a hundred, in which it
cannot launch programs.
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from .packing import PackedRows

__all__ = ['PackedBatch', 'BatchLayout']

SMALL = 1 << 18  # bytes; copying more on the host costs more than a transfer
BYTES = ''  # name of the array that holds the small ones


class BatchLayout:
    """How batches of one kind are packed: names, shapes and dtypes of their arrays."""

    def __init__(self, example: Mapping[str, Any], join: bool):
        """join: whether to make one array of the small ones."""
        self._names = tuple(example)
        small = {k: v for k, v in example.items() if join and _nbytes(v) <= SMALL}
        self._small = PackedRows(small) if len(small) > 1 else None
        self._large = [k for k in example if self._small is None or k not in small]
        self._batch = len(next(iter(example.values())))

    def pack(self, batch: Mapping[str, np.ndarray]) -> 'PackedBatch':
        arrays = {k: batch[k] for k in self._large}
        if self._small is not None:
            arrays[BYTES] = self._small.join(batch)
        return PackedBatch(arrays, self)

    def shapes(self, batch: Mapping[str, jax.ShapeDtypeStruct]) -> 'PackedBatch':
        """What `pack` would return, to compile for."""
        arrays = {k: batch[k] for k in self._large}
        if self._small is not None:
            arrays[BYTES] = self._small.shape(self._batch)
        return PackedBatch(arrays, self)

    def unpack(self, arrays: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
        """The batch by key, called while a program is traced."""
        batch = dict(arrays)
        if self._small is not None:
            batch |= self._small.split_on_device(batch.pop(BYTES))
        return {k: batch[k] for k in self._names}


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=['arrays'],
    meta_fields=['layout'],
)
@dataclasses.dataclass
class PackedBatch:
    """Arrays on the host, on the device or in a program, or their shapes."""

    arrays: dict[str, Any]
    layout: BatchLayout

    def unpack(self) -> dict[str, jax.Array]:
        """The batch by key, called while a program is traced."""
        return self.layout.unpack(self.arrays)


def _nbytes(x: Any) -> int:
    return x.size * np.dtype(x.dtype).itemsize
