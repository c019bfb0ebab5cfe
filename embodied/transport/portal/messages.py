"""Portal's messages: its own packing, made safe for what it would trip over."""

from typing import Any

import numpy as np
from portal import packlib

from ..codec import dtypes, trees
from ..codec.schemas import LARGE
from ..errors import MessageError

__all__ = ['pack', 'read_method', 'unpack', 'write_method']

ROWS = '#'  # between the name of a batched method and the number of rows
U64 = 8


def pack(value: Any) -> list:
    """Buffers of a value; few and none empty, which portal could not send."""
    leaves, structure = trees.flatten(value)
    try:
        parts = packlib.pack(trees.unflatten(structure, map(_leaf, leaves)))
    except (NotImplementedError, TypeError, ValueError, OverflowError) as e:
        raise MessageError(f'Cannot be sent through portal: {e}') from e
    joined: list = []
    small: list = []
    for part in parts:
        if len(part) < LARGE:
            small.append(part)
            continue
        joined += [b''.join(small), part] if small else [part]
        small = []
    return [*joined, b''.join(small)] if small else joined


def unpack(data: Any) -> Any:
    """The value of a message; arrays are read-only views of it."""
    try:
        value = packlib.unpack(data)
    except Exception as e:
        # Portal checks nothing, so broken bytes can raise anything.
        raise MessageError(f'Not a message of portal: {e}') from e
    leaves, structure = trees.flatten(value)
    return trees.unflatten(structure, map(_received, leaves))


def write_method(method: str, rows: int) -> bytes:
    """Length and name of a method; the number of rows is part of the name."""
    name = (f'{method}{ROWS}{rows}' if rows else method).encode()
    return len(name).to_bytes(U64, 'little') + name


def read_method(data: Any) -> tuple[str, int, Any]:
    """Name, number of rows and the rest of a request."""
    length = int.from_bytes(data[:U64], 'little')
    if length > len(data) - U64:
        raise MessageError('The name of a method is longer than its message.')
    text = bytes(data[U64 : U64 + length]).decode(errors='replace')
    name, _, rows = text.partition(ROWS)
    if rows and not rows.isdecimal():
        raise MessageError(f'Not a number of rows: {rows!r}')
    return name, int(rows or 0), data[U64 + length :]


def _leaf(leaf: Any) -> Any:
    if isinstance(leaf, complex):
        return np.asarray(leaf)
    if hasattr(leaf, '__array__'):
        array = np.asarray(leaf)
        if dtypes.describe(array.dtype) != dtypes.describe(np.dtype(array.dtype.str)):
            raise MessageError(f'Portal cannot send arrays of dtype {array.dtype}.')
        return array if array.flags.c_contiguous else array.copy(order='C')
    return leaf


def _received(leaf: Any) -> Any:
    if isinstance(leaf, np.ndarray):
        leaf.flags.writeable = False
    return bytes(leaf) if isinstance(leaf, memoryview) else leaf
