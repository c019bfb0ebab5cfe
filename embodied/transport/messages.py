"""Values as bytes: a schema, small data and large arrays, without pickle.

    schema   containers with their keys; type of every leaf, dtype and shape of arrays
    data     leaves in order: numbers, text, and arrays below LARGE bytes
    arrays   the larger ones, left as they are, to travel in frames or slabs

Messages of one method mostly share their schema, so a parsed one is kept. Everything
is checked before it is used; what does not fit raises MessageError.
"""

import functools
import math
import struct
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from . import dtypes
from .errors import MessageError

__all__ = ['LARGE', 'Encoded', 'decode', 'encode', 'parse_schema']

LARGE = 256 * 1024  # bytes from which an array is not copied into the data
COPIED = 4096  # bytes below which copying an array is the fastest
ALIGN = 16  # of arrays within the data
PADDING = [bytes(-size % ALIGN) for size in range(ALIGN)]  # after so many bytes
MAX_DEPTH = 32
MAX_SCHEMA = 1024 * 1024
MAX_CACHED_SCHEMA = 8 * 1024
MAX_DIMS = 32

NONE, BOOL, INT, BIGINT, FLOAT, COMPLEX, TEXT, BYTES = b'N?iIfcsb'
LIST, TUPLE, DICT, ARRAY, SCALAR = b'ltdag'
U32 = struct.Struct('<I')
I64 = struct.Struct('<q')
F64 = struct.Struct('<d')
C128 = struct.Struct('<dd')
FIXED = {BOOL: struct.Struct('<?'), INT: I64, FLOAT: F64, COMPLEX: C128}
VARIABLE = (BIGINT, TEXT, BYTES)


class Encoded(NamedTuple):
    """A value ready to be sent. Arrays in it still alias the caller's memory."""

    schema: bytes
    pieces: list  # of the data, in order: bytes, views and arrays
    size: int  # bytes of the data
    arrays: list[np.ndarray]  # the large ones


class Leaf(NamedTuple):
    """Type of one leaf; dtype, shape and nbytes are for arrays and their scalars."""

    kind: int
    dtype: np.dtype | None = None
    shape: tuple[int, ...] = ()
    nbytes: int = 0


class Branch(NamedTuple):
    """One container; `keys` are for dicts."""

    kind: int
    keys: tuple
    children: tuple


def encode(value: Any) -> Encoded:
    """Splits a value of dicts, lists, tuples, text, bytes, numbers, None and arrays."""
    encoder = _Encoder()
    try:
        encoder.add(value, MAX_DEPTH)
    except (ValueError, struct.error) as e:  # lone surrogates, 4 GB of text
        raise MessageError(f'Cannot be sent: {e}') from e
    schema = b''.join(encoder.schema)
    if len(schema) > MAX_SCHEMA:
        raise MessageError(
            f'The structure of the value takes {len(schema)} bytes, more than '
            f'{MAX_SCHEMA}. Send arrays instead of many small objects.'
        )
    # A whole number of steps, so that messages can be joined into rows.
    padding = PADDING[encoder.size % ALIGN]
    encoder.data.append(padding)
    return Encoded(schema, encoder.data, encoder.size + len(padding), encoder.arrays)


def decode(node: Leaf | Branch, data: Any, arrays: Sequence) -> Any:
    """The value from its parsed schema, its data and the buffers of large arrays.

    Arrays are read-only views of `data` and `arrays`; nothing is copied.
    """
    decoder = _Decoder(data, arrays)
    try:
        value = decoder.read(node)
    except (struct.error, ValueError, TypeError, IndexError, MemoryError) as e:
        raise MessageError(f'The data do not fit their schema: {e}') from e
    ends = decoder.offset + -decoder.offset % ALIGN
    if ends != len(data) or decoder.index != len(arrays):
        raise MessageError('The data are longer than their schema says.')
    return value


def parse_schema(schema: bytes) -> Leaf | Branch:
    """Checks and parses the schema of a message."""
    if len(schema) > MAX_SCHEMA:
        raise MessageError(f'Schema of {len(schema)} bytes, allowed are {MAX_SCHEMA}.')
    if len(schema) <= MAX_CACHED_SCHEMA:
        return _parse_cached(schema)
    return _parse(schema)


@functools.lru_cache(maxsize=512)
def _parse_cached(schema: bytes) -> Leaf | Branch:
    return _parse(schema)


def _parse(schema: bytes) -> Leaf | Branch:
    parser = _Parser(schema)
    try:
        node = parser.node(MAX_DEPTH)
    except (struct.error, IndexError, ValueError, TypeError) as e:
        raise MessageError(f'Broken schema: {e}') from e
    if parser.offset != len(schema):
        raise MessageError('Broken schema: bytes after its end.')
    return node


@functools.lru_cache(maxsize=1024)
def _array_schema(kind: bytes, dtype: np.dtype, shape: tuple[int, ...]) -> bytes:
    text = dtypes.describe(dtype)
    return kind + struct.pack(f'<HB{len(shape)}Q', len(text), len(shape), *shape) + text


@functools.lru_cache(maxsize=256)
def _open_schema(kind: bytes, count: int) -> bytes:
    return kind + U32.pack(count)


@functools.lru_cache(maxsize=1024)
def _key_schema(key: Any, kind: type) -> bytes:
    """Schema of a key; `kind` tells True from 1 in the cache."""
    if issubclass(kind, str):
        text = key.encode()
        return b's' + U32.pack(len(text)) + text
    if issubclass(kind, int) and kind is not bool and _is_int64(key):
        return b'i' + I64.pack(key)
    raise MessageError(f'Keys are text or integers, not {key!r}.')


class _Encoder:
    def __init__(self) -> None:
        self.schema: list[bytes] = []
        self.data: list[Any] = []
        self.arrays: list[np.ndarray] = []
        self.size = 0

    def add(self, value: Any, depth: int) -> None:
        if isinstance(value, np.ndarray):
            self._array(b'a', value)
        elif isinstance(value, (dict, Mapping)):
            self._open(b'd', len(value), depth)
            for key, child in value.items():
                kind: Any = type(key)
                self.schema.append(_key_schema(key, kind))
                if type(child) is np.ndarray:  # mostly; saves a call
                    self._array(b'a', child)
                else:
                    self.add(child, depth - 1)
        elif isinstance(value, (list, tuple)):
            self._open(b'l' if isinstance(value, list) else b't', len(value), depth)
            for child in value:
                self.add(child, depth - 1)
        elif isinstance(value, np.generic):
            self._array(b'g', value)
        elif hasattr(value, '__array__'):
            self._array(b'a', np.asarray(value))
        else:
            self._plain(value)

    def _open(self, kind: bytes, count: int, depth: int) -> None:
        if depth == 0:
            raise MessageError(f'Values may be nested {MAX_DEPTH} deep, not deeper.')
        self.schema.append(_open_schema(kind, count))

    def _plain(self, value: Any) -> None:
        if value is None:
            self.schema.append(b'N')
        elif isinstance(value, bool):
            self._put(b'?', b'\1' if value else b'\0')
        elif isinstance(value, int):
            if _is_int64(value):
                self._put(b'i', I64.pack(value))
            else:
                self._sized(b'I', str(value).encode())
        elif isinstance(value, float):
            self._put(b'f', F64.pack(value))
        elif isinstance(value, complex):
            self._put(b'c', C128.pack(value.real, value.imag))
        elif isinstance(value, str):
            self._sized(b's', value.encode())
        elif isinstance(value, (bytes, bytearray, memoryview)):
            self._sized(b'b', bytes(value))
        else:
            raise MessageError(
                f'Cannot send a {type(value).__name__}. Allowed are dicts, lists, '
                f'tuples, str, bytes, numbers, None and arrays.'
            )

    def _array(self, kind: bytes, value: Any) -> None:
        self.schema.append(_array_schema(kind, value.dtype, value.shape))
        nbytes = value.nbytes
        if nbytes >= LARGE:
            self.arrays.append(np.asarray(value))
            return
        padding = PADDING[self.size % ALIGN]
        self.data += (padding, value if _is_plain(value, nbytes) else value.tobytes())
        self.size += len(padding) + nbytes

    def _put(self, kind: bytes, data: bytes) -> None:
        self.schema.append(kind)
        self._bytes(data)

    def _sized(self, kind: bytes, data: bytes) -> None:
        self.schema.append(kind)
        self._bytes(U32.pack(len(data)))
        self._bytes(data)

    def _bytes(self, data: bytes) -> None:
        self.data.append(data)
        self.size += len(data)


class _Parser:
    def __init__(self, schema: bytes) -> None:
        self.schema = schema
        self.offset = 0

    def node(self, depth: int) -> Leaf | Branch:
        kind = self._take(1)[0]
        if kind in (ARRAY, SCALAR):
            return self._array(kind)
        if kind in (LIST, TUPLE, DICT):
            if depth == 0:
                raise MessageError('Broken schema: nested too deeply.')
            return self._branch(kind, depth)
        if kind == NONE or kind in FIXED or kind in VARIABLE:
            return Leaf(kind)
        raise MessageError(f'Broken schema: unknown type {kind}.')

    def _branch(self, kind: int, depth: int) -> Branch:
        count = self._number()
        keys, children = [], []
        # A hostile count cannot cost more than the bytes that follow it.
        for _ in range(count):
            if kind == DICT:
                keys.append(self._key())
            children.append(self.node(depth - 1))
        if len(set(keys)) != len(keys):
            raise MessageError('Broken schema: a key appears twice.')
        return Branch(kind, tuple(keys), tuple(children))

    def _key(self) -> Any:
        kind = self._take(1)[0]
        if kind == TEXT:
            return str(self._take(self._number()), 'utf-8')
        if kind == INT:
            return I64.unpack(self._take(I64.size))[0]
        raise MessageError('Broken schema: a key is neither text nor integer.')

    def _array(self, kind: int) -> Leaf:
        length, ndim = struct.unpack('<HB', self._take(3))
        if ndim > MAX_DIMS or (kind == SCALAR and ndim):
            raise MessageError(f'Broken schema: array of {ndim} dimensions.')
        shape = struct.unpack(f'<{ndim}Q', self._take(8 * ndim))
        dtype = dtypes.parse(self._take(length))
        return Leaf(kind, dtype, shape, dtype.itemsize * math.prod(shape))

    def _number(self) -> int:
        return U32.unpack(self._take(4))[0]

    def _take(self, size: int) -> bytes:
        start, self.offset = self.offset, self.offset + size
        if self.offset > len(self.schema):
            raise MessageError('Broken schema: it ends too early.')
        return self.schema[start : self.offset]


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
        kind, dtype, shape, nbytes = leaf
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


def _is_plain(array: Any, nbytes: int) -> bool:
    """Whether an array is worth being joined without a copy, and can be."""
    if nbytes < COPIED:
        return False
    dtype = array.dtype
    return dtype.isbuiltin == 1 and dtype.kind in 'biufc' and array.flags.c_contiguous


def _is_int64(value: int) -> bool:
    return -(2**63) <= value < 2**63
