"""Values as bytes: a schema, small data and large arrays, without pickle.

    schema   see `schemas.py`
    data     leaves in order: numbers, text, and arrays below LARGE bytes
    arrays   the larger ones, left as they are, to travel in frames or slabs

Data that do not fit their schema raise MessageError. Every call runs through this
several times, mostly with cold CPU caches, so it has to touch little: the schema of a
value is found by its signature, a flat list of keys, dtypes and shapes.
"""

import functools
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy import ndarray

from ..errors import MessageError
from . import dtypes
from .schemas import (
    ALIGN,
    ARRAY,
    BYTES,
    C128,
    COMPLEX,
    DICT,
    F64,
    FIXED,
    I64,
    LARGE,
    LIST,
    MAX_DEPTH,
    MAX_SCHEMA,
    NONE,
    SCALAR,
    TEXT,
    U32,
    Branch,
    Leaf,
    Schema,
)

__all__ = ['Encoded', 'decode', 'encode']

COPIED = 32 * 1024  # bytes below which copying an array is the fastest
CONTAINERS = ((Mapping, dict), (list, list), (tuple, tuple))
OPENERS = {dict: b'd', list: b'l', tuple: b't'}
MAX_CACHED_SIGNATURE = 512
PADDING = [bytes(-size % ALIGN) for size in range(ALIGN)]  # after so many bytes


class Encoded(NamedTuple):
    """A value ready to be sent. Arrays in it still alias the caller's memory."""

    schema: bytes
    pieces: list  # of the data, in order: bytes, views and arrays
    size: int  # bytes of the data
    arrays: list[np.ndarray]  # the large ones


def encode(value: Any) -> tuple[bytes, list, int, list[ndarray]]:
    """Splits a value of dicts, lists, tuples, text, bytes, numbers, None and arrays.

    Returns what `Encoded` holds, but as a plain tuple, which is faster to make.
    """
    signature: list[Any] = []
    data: list[Any] = []
    arrays: list[ndarray] = []
    try:
        size = _add((value,), MAX_DEPTH, signature, data, arrays, 0)
        long = len(signature) > MAX_CACHED_SIGNATURE
        schema = (_write_schema if long else _cached_schema)(*signature)
    except (ValueError, struct.error) as e:  # lone surrogates, 4 GB of text
        raise MessageError(f'Cannot be sent: {e}') from e
    if padding := PADDING[size % ALIGN]:  # so that messages can be joined into rows
        data.append(padding)
    return schema, data, size + len(padding), arrays


def decode(schema: Schema, data: Any, arrays: Sequence = ()) -> Any:
    """The value from its parsed schema, its data and the buffers of large arrays.

    Arrays are read-only views of `data`, which are bytes, and of `arrays`; nothing is
    copied.
    """
    root, size = schema
    used = 0
    try:
        if size is not None:
            (value,) = _views((root,), data)
        else:
            decoder = _Decoder(data, arrays)
            value = decoder.read(root)
            size, used = decoder.offset + -decoder.offset % ALIGN, decoder.index
    except (struct.error, ValueError, TypeError, IndexError, MemoryError) as e:
        raise MessageError(f'The data do not fit their schema: {e}') from e
    if size != len(data) or used != len(arrays):
        raise MessageError('The data are longer than their schema says.')
    return value


def _add(
    values: Iterable, depth: int, signature: list, data: list, arrays: list, size: int
) -> int:
    """Adds values to the lists; returns the size of all data so far."""
    for value in values:
        kind = type(value)
        if kind is ndarray:
            signature += (ARRAY, value.dtype, value.shape)
            nbytes = value.nbytes
            if nbytes >= LARGE:
                arrays.append(value)
                continue
            if padding := PADDING[size % ALIGN]:
                data.append(padding)
            # Joining copies anyway; taking the bytes first is faster for small ones.
            data.append(value.tobytes() if nbytes < COPIED else _joinable(value))
            size += len(padding) + nbytes
        elif kind is dict or kind is tuple or kind is list:
            if depth == 0:
                raise MessageError(f'Values may be nested {MAX_DEPTH} deep at most.')
            signature += (kind, len(value))
            if kind is dict:
                signature += value  # its keys
                value = value.values()
            size = _add(value, depth - 1, signature, data, arrays, size)
        else:
            size = _add_other(value, depth, signature, data, arrays, size)
    return size


def _add_other(
    value: Any, depth: int, signature: list, data: list, arrays: list, size: int
) -> int:
    """Adds a value that is neither a plain container nor a NumPy array."""
    for base, plain in CONTAINERS:
        if isinstance(value, base):
            return _add((plain(value),), depth, signature, data, arrays, size)
    if hasattr(value, '__array__'):
        at = len(signature)
        size = _add((np.asarray(value),), depth, signature, data, arrays, size)
        if isinstance(value, np.generic):
            signature[at] = SCALAR
        return size
    token, leaf = _plain(value)
    signature.append(token)
    data.append(leaf)
    return size + len(leaf)


@functools.lru_cache(maxsize=512, typed=True)  # True and 1 are different keys
def _cached_schema(*signature: Any) -> bytes:
    return _write_schema(*signature)


def _write_schema(*signature: Any) -> bytes:
    """The schema of the value with this signature."""
    schema = b''.join(_nodes(iter(signature)))
    if len(schema) > MAX_SCHEMA:
        raise MessageError(
            f'The structure of the value takes {len(schema)} bytes, more than '
            f'{MAX_SCHEMA}. Send arrays instead of many small objects.'
        )
    return schema


def _nodes(tokens: Iterator[Any]) -> Iterator[bytes]:
    """One value of the signature."""
    token = next(tokens)
    if token in (ARRAY, SCALAR):
        text, shape = dtypes.describe(next(tokens)), next(tokens)
        sizes = struct.pack(f'<HB{len(shape)}Q', len(text), len(shape), *shape)
        yield bytes([token]) + sizes + text
    elif isinstance(token, bytes):
        yield token
    else:
        count = next(tokens)
        yield OPENERS[token] + U32.pack(count)
        keys = [next(tokens) if token is dict else None for _ in range(count)]
        for key in keys:
            if token is dict:
                yield _key_schema(key)
            yield from _nodes(tokens)


def _key_schema(key: Any) -> bytes:
    if isinstance(key, str):
        text = key.encode()
        return b's' + U32.pack(len(text)) + text
    if isinstance(key, int) and type(key) is not bool and _is_int64(key):
        return b'i' + I64.pack(key)
    raise MessageError(f'Keys are text or integers, not {key!r}.')


def _joinable(array: Any) -> Any:
    dtype = array.dtype
    plain = dtype.isbuiltin == 1 and dtype.kind in 'biufc' and array.flags.c_contiguous
    return array if plain else array.tobytes()


def _plain(value: Any) -> tuple[bytes, bytes]:
    """Schema and data of a leaf that is no array."""
    if value is None:
        return b'N', b''
    if isinstance(value, bool):
        return b'?', b'\1' if value else b'\0'
    if isinstance(value, int):
        if _is_int64(value):
            return b'i', I64.pack(value)
        return b'I', _sized(str(value).encode())
    if isinstance(value, float):
        return b'f', F64.pack(value)
    if isinstance(value, complex):
        return b'c', C128.pack(value.real, value.imag)
    if isinstance(value, str):
        return b's', _sized(value.encode())
    if isinstance(value, (bytes, bytearray, memoryview)):
        return b'b', _sized(bytes(value))
    raise MessageError(
        f'Cannot send a {type(value).__name__}. Allowed are dicts, lists, '
        f'tuples, str, bytes, numbers, None and arrays.'
    )


def _sized(data: bytes) -> bytes:
    return U32.pack(len(data)) + data


def _views(nodes: tuple, data: Any) -> list:
    """The values of nodes of a schema with small arrays only."""
    values: list[Any] = []
    for node in nodes:
        if type(node) is Leaf:
            kind, dtype, shape, _, offset = node
            value = ndarray(shape, dtype, data, offset)
            values.append(value if kind == ARRAY else value[()])
        else:
            kind, keys, children = node
            parts = _views(children, data)
            if kind == DICT:
                values.append(dict(zip(keys, parts, strict=True)))
            else:
                values.append(parts if kind == LIST else tuple(parts))
    return values


class _Decoder:
    def __init__(self, data: Any, arrays: Sequence) -> None:
        self.data = data
        self.arrays = arrays
        self.offset = 0
        self.index = 0

    def read(self, node: Leaf | Branch) -> Any:
        kind = node.kind
        if type(node) is Leaf and node.dtype is not None:
            return self._array(node)
        if isinstance(node, Branch):
            children = [self.read(child) for child in node.children]
            if kind == DICT:
                return dict(zip(node.keys, children, strict=True))
            return children if kind == LIST else tuple(children)
        if kind == NONE:
            return None
        if kind in FIXED:
            values = FIXED[kind].unpack(self._take(FIXED[kind].size))
            return complex(*values) if kind == COMPLEX else values[0]
        return self._variable(kind)

    def _array(self, leaf: Leaf) -> Any:
        kind, dtype, shape, nbytes, _ = leaf
        if nbytes >= LARGE:
            source = self.arrays[self.index]
            self.index += 1
            if len(source) != nbytes:
                raise ValueError(f'array of {nbytes} bytes in {len(source)}')
            array: Any = np.ndarray(shape, dtype, source)
            array.flags.writeable = False
        else:  # The data are bytes, so views of them are read-only anyway.
            offset = self.offset + -self.offset % ALIGN
            self.offset = offset + nbytes
            array = np.ndarray(shape, dtype, self.data, offset)
        return array if kind == ARRAY else array[()]

    def _variable(self, kind: int) -> Any:
        data = bytes(self._take(U32.unpack(self._take(4))[0]))
        if kind == BYTES:
            return data
        text = str(data, 'utf-8')
        return text if kind == TEXT else int(text)

    def _take(self, size: int) -> Any:
        start, self.offset = self.offset, self.offset + size
        if self.offset > len(self.data):
            raise ValueError('the data end too early')
        return self.data[start : self.offset]


def _is_int64(value: int) -> bool:
    return -(2**63) <= value < 2**63
