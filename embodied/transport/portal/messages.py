"""Portal's messages: its own packing, made safe for what it would trip over."""

import json
from typing import Any

import numpy as np
from portal import packlib

from embodied.core.errors import ConfigError

from .. import addresses
from ..codec import dtypes, trees
from ..codec.schemas import LARGE
from ..errors import MessageError, RemoteError
from ..keys import ClientKeys, ServerKeys

__all__ = [
    'pack',
    'pack_error',
    'read_method',
    'require_loopback',
    'unpack',
    'unpack_error',
    'write_method',
]

ROWS = '#'  # between the name of a batched method and the number of rows
U64 = 8


def require_loopback(
    addr: Any, keys: ServerKeys | ClientKeys | None
) -> addresses.Address:
    """The parsed address, if portal may serve or call it."""
    if callable(addr):
        raise ConfigError(
            'Portal needs a fixed address and cannot ask a function for it. Choose '
            'run.transport=native.'
        )
    address = addresses.parse(addr)
    if keys is not None or not address.loopback:
        raise ConfigError(
            f'Portal cannot authenticate the other end, so it is for localhost only, '
            f'not for {address.host}. Choose run.transport=native.'
        )
    return address


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


def pack_error(description: dict[str, Any]) -> bytes:
    """The text of an error: message, traceback, and a last line of JSON.

    A stock client shows it as it is; ours reads the last line.
    """
    message = f'{description["kind"]}: {description["reason"]}'
    rest = {key: description[key] for key in ('kind', 'reason', 'errno')}
    last = json.dumps({**rest, 'lines': message.count('\n') + 1})
    return f'{message}\n{description["text"]}\n{last}'.encode()


def unpack_error(data: Any) -> RemoteError:
    """The opposite of `pack_error`; errors of a stock server are text only."""
    text, _, last = bytes(data).decode(errors='replace').rpartition('\n')
    try:
        rest = json.loads(last)
        kind, reason, errno = rest['kind'], rest['reason'], rest['errno']
        trace = '\n'.join(text.split('\n')[rest['lines'] :])
    except (ValueError, TypeError, KeyError):
        return RemoteError(f'{text}\n{last}'.strip())
    return RemoteError(reason, trace, kind=kind, errno=errno)


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
