"""Encoding: values into messages and back, through slabs if the other end maps them."""

import sys
from collections.abc import Hashable
from typing import Any

import numpy as np

from ..errors import MessageError
from .frames import INLINE, MAX_PLACES, Content, Message, Place
from .schemas import parse_schema
from .shared_memory import SlabPool, SlabReader
from .values import Encoded, decode, encode

__all__ = ['pack', 'prepare', 'unpack_value']


def pack(
    kind: int,
    value: Any,
    number: int = 0,
    method: bytes = b'',
    rows: int = 0,
    pool: SlabPool | None = None,
    holder: Hashable = None,
) -> Message:
    """A message with a value, see `prepare`."""
    places, schema, data, buffers = prepare(value, pool, holder)
    return Message(kind, number, method, rows, places, schema, data, buffers)


def prepare(
    value: Any,
    pool: SlabPool | None = None,
    holder: Hashable = None,
    limit: int = sys.maxsize,
) -> Content:
    """A value ready to be sent; large arrays go to slabs of `pool`, or inline.

    The value may be encoded already. No frame may exceed `limit` bytes: the other end
    would close the connection, each time.
    """
    schema, data, size, arrays = value if type(value) is Encoded else encode(value)
    if not arrays and size <= limit:
        return (), schema, data, ()
    _check_sizes(size, arrays, limit)
    places = pool.place(arrays, holder) if pool else None
    if places is not None:
        return places, schema, data, ()
    places = tuple(Place(INLINE, 0, 0, 0, array.nbytes) for array in arrays)
    return places, schema, data, tuple(_raw(array) for array in arrays)


def unpack_value(message: Message, reader: SlabReader | None = None) -> Any:
    """The value of a message; arrays are read-only views of what has arrived."""
    _, _, _, _, places, text, data, inline, _, _ = message
    schema = parse_schema(text)
    if not places:
        return decode(schema, data)
    buffers = list(inline)
    if len(buffers) < len(places):
        if reader is None:
            raise MessageError('Arrays in slabs that were not offered.')
        buffers = reader.open(places, buffers)
    return decode(schema, data, buffers)


def _check_sizes(size: int, arrays: list[np.ndarray], limit: int) -> None:
    largest = max([size, *(array.nbytes for array in arrays)])
    if largest > limit or len(arrays) > MAX_PLACES:
        raise MessageError(
            f'A message with {len(arrays)} large arrays and {largest} bytes in one '
            f'piece. Allowed are {MAX_PLACES} and {limit}; split it.'
        )


def _raw(array: np.ndarray) -> memoryview:
    array = array if array.flags.c_contiguous else array.copy(order='C')
    return array.reshape(-1).view(np.uint8).data
