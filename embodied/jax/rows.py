"""Rows: arrays with one row per environment as one array of bytes.

A transfer to or from a device costs about as much as a small program: observations go
there in one, actions and latents come back in one.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

__all__ = ['Rows']


class Rows:
    """The shapes of some arrays [n, ...] by name, without n."""

    def __init__(self, example: Mapping[Any, Any]):
        # JAX itself narrows 64 bits to 32 unless told otherwise.
        dtype = lambda x: np.dtype(jax.dtypes.canonicalize_dtype(x.dtype))
        self._specs = {k: (v.shape[1:], dtype(v)) for k, v in example.items()}

    @property
    def signature(self) -> tuple:
        return tuple(self._specs.items())

    def join(self, arrays: Mapping[Any, np.ndarray]) -> np.ndarray:
        """On the host: [n, bytes] uint8."""
        parts = []
        for name, (_, dtype) in self._specs.items():
            array = np.ascontiguousarray(arrays[name], dtype)
            parts.append(array.reshape(len(array), -1).view(np.uint8))
        return np.concatenate(parts, 1)

    def split(self, data: np.ndarray) -> dict[Any, np.ndarray]:
        """On the host, the inverse of either join."""
        outs, start = {}, 0
        for name, (shape, dtype) in self._specs.items():
            stop = start + math.prod(shape) * dtype.itemsize
            part = np.ascontiguousarray(data[:, start:stop])
            outs[name] = part.view(dtype).reshape(len(data), *shape)
            start = stop
        return outs

    def join_on_device(self, arrays: Mapping[Any, jax.Array]) -> jax.Array:
        """In a program: [n, bytes] uint8."""
        return jnp.concatenate([_bytes(arrays[name]) for name in self._specs], 1)

    def split_on_device(self, data: jax.Array) -> dict[Any, jax.Array]:
        """In a program, the inverse of either join."""
        outs, start = {}, 0
        for name, (shape, dtype) in self._specs.items():
            stop = start + math.prod(shape) * dtype.itemsize
            outs[name] = _values(data[:, start:stop], shape, dtype)
            start = stop
        return outs


def _bytes(array: jax.Array) -> jax.Array:
    if array.dtype == bool:
        array = array.astype(jnp.uint8)
    if array.dtype != jnp.uint8:
        array = jax.lax.bitcast_convert_type(array, jnp.uint8)
    return array.reshape(array.shape[0], -1)


def _values(data: jax.Array, shape: Sequence[int], dtype: np.dtype) -> jax.Array:
    rows = data.shape[0]
    if dtype.kind == 'b':
        return data.reshape(rows, *shape) != 0
    size = (dtype.itemsize,) if dtype.itemsize > 1 else ()
    return jax.lax.bitcast_convert_type(data.reshape(rows, *shape, *size), dtype)
