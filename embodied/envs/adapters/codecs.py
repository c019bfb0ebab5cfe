"""Codecs between nested values of foreign environments and flat dicts of arrays.

A codec has `spaces` (flat keys to `elements.Space`), `encode(value) -> dict of arrays`
for observations and `decode(dict of arrays) -> value` for actions. Both take values of
one environment, or arrays [N, ...] of the members of a vector environment. Integers
always count from zero on our side. Adapters pick a codec for each foreign space.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import elements
import numpy as np

from ...core.base import Spaces
from ...core.errors import SpaceError

__all__ = [
    'Codec',
    'Coded',
    'DictCodec',
    'Direct',
    'TupleCodec',
    'integers',
]

MAX_CLASSES = 65536  # Agents one-hot encode integers; more do not fit in memory.

# Of integer keys, which count from zero on our side: what zero stands for.
Starts: TypeAlias = dict[str, np.ndarray]


class Codec(Protocol):
    spaces: Spaces
    starts: Starts

    def encode(self, value: Any) -> dict[str, Any]: ...

    def decode(self, flat: Mapping[str, Any]) -> Any: ...


class Coded:
    """An environment whose observations and actions go through codecs."""

    _obs: Codec
    _act: Codec

    @property
    def starts(self) -> Starts:
        """What zero stands for in its integer keys."""
        return {**self._obs.starts, **self._act.starts}


class Direct:
    """Floats, images and booleans: the array as it is."""

    def __init__(
        self,
        key: str,
        dtype: Any,
        shape: tuple[int, ...],
        low: Any = None,
        high: Any = None,
    ) -> None:
        _refuse_empty(key, shape)
        self._key = key
        self._dtype = np.dtype(dtype)
        self.spaces = {key: elements.Space(self._dtype, tuple(shape), low, high)}
        self.starts: Starts = {}

    def encode(self, value: Any) -> dict[str, Any]:
        return {self._key: np.asarray(value)}

    def decode(self, flat: Mapping[str, Any]) -> Any:
        return np.asarray(flat[self._key], self._dtype)


class Integers:
    """Integers from `start` to `start + count - 1`, with one count for all of them."""

    def __init__(
        self, key: str, count: int, start: np.ndarray, dtype: Any, native: Any
    ) -> None:
        self._key = key
        self._start = start
        self._dtype = np.dtype(dtype)
        self._native = np.dtype(native)
        self.spaces = {key: elements.Space(self._dtype, start.shape, 0, count)}
        self.starts: Starts = {key: start}

    def encode(self, value: Any) -> dict[str, Any]:
        value = np.asarray(value)
        if value.dtype.kind not in 'iub':
            return {self._key: value}  # Rounding would hide the mistake.
        shifted = value.astype(np.int64) - self._start
        cast = shifted.astype(self._dtype)
        return {self._key: cast if (cast == shifted).all() else shifted}

    def decode(self, flat: Mapping[str, Any]) -> Any:
        value = np.asarray(flat[self._key]).astype(np.int64) + self._start
        return value.astype(self._native)


class DictCodec:
    """A dict of named parts."""

    def __init__(self, parts: Mapping[str, Codec]) -> None:
        self._parts = dict(parts)
        self.spaces = _merge(parts.values())
        self.starts = _union(x.starts for x in parts.values())

    def encode(self, value: Any) -> dict[str, Any]:
        return _union(codec.encode(value[k]) for k, codec in self._parts.items())

    def decode(self, flat: Mapping[str, Any]) -> Any:
        return {k: codec.decode(flat) for k, codec in self._parts.items()}


class TupleCodec:
    """A tuple of parts."""

    def __init__(self, parts: Sequence[Codec]) -> None:
        self._parts = tuple(parts)
        self.spaces = _merge(parts)
        self.starts = _union(x.starts for x in parts)

    def encode(self, value: Any) -> dict[str, Any]:
        pairs = zip(self._parts, value, strict=True)
        return _union(codec.encode(part) for codec, part in pairs)

    def decode(self, flat: Mapping[str, Any]) -> Any:
        return tuple(codec.decode(flat) for codec in self._parts)


class ArrayCodec(TupleCodec):
    """An integer array whose entries have different counts: one key for each."""

    def __init__(
        self, parts: Sequence[Codec], shape: tuple[int, ...], native: Any
    ) -> None:
        super().__init__(parts)
        self._shape = shape
        self._native = native

    def encode(self, value: Any) -> dict[str, Any]:
        value = np.asarray(value)
        lead = value.shape[: value.ndim - len(self._shape)]
        return super().encode(np.moveaxis(value.reshape(*lead, -1), -1, 0))

    def decode(self, flat: Mapping[str, Any]) -> Any:
        parts = np.stack(super().decode(flat), -1).astype(self._native)
        return parts.reshape(*parts.shape[:-1], *self._shape)


def integers(key: str, low: Any, high: Any, native: Any) -> Codec:
    """Codec of integers from `low` to `high`, both included, in the `native` dtype."""
    low, high = np.asarray(low), np.asarray(high)
    _refuse_empty(key, low.shape)
    # Python integers do not overflow, as the extremes of 64 bits would.
    counts = [int(b) - int(a) + 1 for a, b in zip(low.flat, high.flat, strict=True)]
    if max(counts) > MAX_CLASSES or min(counts) < 1:
        raise SpaceError(
            f'{key!r} holds integers from {low.min()} to {high.max()}. Agents one-hot '
            f'encode integers, so each needs 1 to {MAX_CLASSES} possible values. Bound '
            f'them, or declare them as floats.'
        )
    dtype = np.uint8 if np.dtype(native) == np.uint8 else np.int32
    start = low.astype(np.int64)
    if len(set(counts)) == 1:
        return Integers(key, counts[0], start, dtype, native)
    parts = [
        Integers(f'{key}/{i}', count, np.asarray(start.flat[i]), dtype, native)
        for i, count in enumerate(counts)
    ]
    return ArrayCodec(parts, low.shape, native)


def _merge(codecs: Any) -> Spaces:
    merged: Spaces = {}
    for codec in codecs:
        for key, space in codec.spaces.items():
            if key in merged:
                raise SpaceError(
                    f'Two parts of the space both become the key {key!r}. Rename one.'
                )
            merged[key] = space
    return merged


def _union(dicts: Any) -> dict[str, Any]:
    return {k: v for part in dicts for k, v in part.items()}


def _refuse_empty(key: str, shape: tuple[int, ...]) -> None:
    if 0 in shape:
        raise SpaceError(f'{key!r} has the empty shape {shape}. Remove it.')
