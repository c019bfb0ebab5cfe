"""Schemas: how the values of messages are built, as bytes and parsed.

Containers with their keys, the type of every leaf, dtype and shape of arrays. Messages
of one method mostly share their schema, so a parsed one is kept. Everything is checked
before it is used; what makes no sense raises MessageError.
"""

import functools
import math
import struct
from typing import Any, NamedTuple

import numpy as np

from ..errors import MessageError
from . import dtypes

__all__ = ['Branch', 'Leaf', 'Schema', 'parse_schema']

LARGE = 256 * 1024  # bytes from which an array is not copied into the data
ALIGN = 16  # of arrays within the data
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


class Leaf(NamedTuple):
    """Type of one leaf; dtype, shape and nbytes are for arrays and their scalars."""

    kind: int
    dtype: np.dtype | None = None
    shape: tuple[int, ...] = ()
    nbytes: int = 0
    offset: int = 0  # in the data, where the schema alone says that


class Branch(NamedTuple):
    """One container; `keys` are for dicts."""

    kind: int
    keys: tuple
    children: tuple


class Schema(NamedTuple):
    """A parsed schema."""

    root: Leaf | Branch
    size: int | None  # bytes of the data if there are only small arrays, else None


def parse_schema(schema: bytes) -> Schema:
    """Checks and parses the schema of a message."""
    return (_parse_cached if len(schema) <= MAX_CACHED_SCHEMA else _parse)(schema)


@functools.lru_cache(maxsize=512)
def _parse_cached(schema: bytes) -> Schema:
    return _parse(schema)


def _parse(schema: bytes) -> Schema:
    if len(schema) > MAX_SCHEMA:
        raise MessageError(f'Schema of {len(schema)} bytes, allowed are {MAX_SCHEMA}.')
    parser = _Parser(schema)
    try:
        root = parser.node(MAX_DEPTH)
    except (struct.error, IndexError, ValueError, TypeError) as e:
        raise MessageError(f'Broken schema: {e}') from e
    if parser.offset != len(schema):
        raise MessageError('Broken schema: bytes after its end.')
    return Schema(root, parser.ends + -parser.ends % ALIGN if parser.plain else None)


class _Parser:
    def __init__(self, schema: bytes) -> None:
        self.schema = schema
        self.offset = 0
        self.ends = 0  # where the last leaf ends in the data
        self.plain = True  # so far all leaves are small arrays

    def node(self, depth: int) -> Leaf | Branch:
        kind = self._take(1)[0]
        if kind in (ARRAY, SCALAR):
            return self._array(kind)
        if kind in (LIST, TUPLE, DICT):
            if depth == 0:
                raise MessageError('Broken schema: nested too deeply.')
            return self._branch(kind, depth)
        if kind == NONE or kind in FIXED or kind in VARIABLE:
            self.plain = False
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
        nbytes = dtype.itemsize * math.prod(shape)
        offset = self.ends + -self.ends % ALIGN
        self.ends = offset + nbytes
        self.plain = self.plain and nbytes < LARGE
        return Leaf(kind, dtype, shape, nbytes, offset)

    def _number(self) -> int:
        return U32.unpack(self._take(4))[0]

    def _take(self, size: int) -> bytes:
        start, self.offset = self.offset, self.offset + size
        if self.offset > len(self.schema):
            raise MessageError('Broken schema: it ends too early.')
        return self.schema[start : self.offset]
