"""Packing: arrays with one row per environment as one array of bytes.

A transfer to or from a device costs about as much as a small program: observations go
there in one, actions and latents come back in one.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

__all__ = ['PackedRows']


class PackedRows:
    """The shapes of some arrays [n, ...] by name, without n.

    They lie one after the other, so that taking them apart copies nothing; large items
    come first, so that each array begins at a multiple of its item size.
    """

    def __init__(self, example: Mapping[Any, Any]):
        # JAX itself narrows 64 bits to 32 unless told otherwise.
        dtype = lambda x: np.dtype(jax.dtypes.canonicalize_dtype(x.dtype))
        specs = [(k, v.shape[1:], dtype(v)) for k, v in example.items()]
        self._specs = sorted(specs, key=lambda spec: -spec[2].itemsize)
        self._row_bytes = sum(_size(*spec[1:]) for spec in self._specs)

    def shape(self, rows: int) -> jax.ShapeDtypeStruct:
        """Shape and dtype of what `join` returns for arrays with so many rows."""
        return jax.ShapeDtypeStruct((rows * self._row_bytes,), np.uint8)

    def join(self, arrays: Mapping[Any, np.ndarray]) -> np.ndarray:
        """Packs arrays on the host: [bytes] uint8."""
        return np.concatenate(
            [
                np.ascontiguousarray(arrays[name], dtype).reshape(-1).view(np.uint8)
                for name, _, dtype in self._specs
            ]
        )

    def split(self, data: np.ndarray) -> dict[Any, np.ndarray]:
        """Undoes either join on the host: views of the data."""
        return {
            name: data[part].view(dtype).reshape(shape)
            for name, part, shape, dtype in self._parts(len(data))
        }

    def join_on_device(self, arrays: Mapping[Any, jax.Array]) -> jax.Array:
        """Packs arrays in a program: [bytes] uint8."""
        return jnp.concatenate([_bytes(arrays[name]) for name, *_ in self._specs])

    def split_on_device(self, data: jax.Array) -> dict[Any, jax.Array]:
        """Undoes either join in a program."""
        return {
            name: _values(data[part], shape, dtype)
            for name, part, shape, dtype in self._parts(len(data))
        }

    def _parts(self, size: int) -> Iterator[tuple[Any, slice, tuple, np.dtype]]:
        """Names, places, shapes and types of the arrays in so many bytes."""
        rows, start = size // self._row_bytes, 0
        for name, shape, dtype in self._specs:
            stop = start + rows * _size(shape, dtype)
            yield name, slice(start, stop), (rows, *shape), dtype
            start = stop


def _size(shape: Sequence[int], dtype: np.dtype) -> int:
    return math.prod(shape) * dtype.itemsize


def _bytes(array: jax.Array) -> jax.Array:
    if array.dtype == bool:
        array = array.astype(jnp.uint8)
    if array.dtype != jnp.uint8:
        array = jax.lax.bitcast_convert_type(array, jnp.uint8)
    return array.reshape(-1)


def _values(data: jax.Array, shape: Sequence[int], dtype: np.dtype) -> jax.Array:
    if dtype.kind == 'b':
        return data.reshape(shape) != 0
    size = (dtype.itemsize,) if dtype.itemsize > 1 else ()
    return jax.lax.bitcast_convert_type(data.reshape(*shape, *size), dtype)
