"""Descriptions of array dtypes as text, without pickle and safe to parse."""

import functools
import json
from typing import Any

import numpy as np

from ..errors import MessageError

__all__ = ['describe', 'parse']

# NumPy calls these 'V2' and 'V1'; they are defined by another package.
EXTENSION = ('bfloat16', 'float8_e4m3fn', 'float8_e5m2', 'float8_e4m3b11fnuz')
MAX_FIELDS = 256
MAX_NESTING = 8


@functools.lru_cache(maxsize=256)
def describe(dtype: np.dtype) -> bytes:
    """Text of a dtype, the opposite of `parse`."""
    return json.dumps(_to_plain(dtype), separators=(',', ':')).encode()


@functools.lru_cache(maxsize=256)
def parse(text: bytes) -> np.dtype:
    """The dtype that `describe` wrote; anything else raises MessageError."""
    try:
        return _from_plain(json.loads(text), MAX_NESTING)
    except (
        ValueError,
        TypeError,
        KeyError,
        SyntaxError,
        OverflowError,
        RecursionError,
    ) as e:
        raise MessageError(f'Not a dtype: {text[:80]!r} ({e})') from e


def _to_plain(dtype: np.dtype) -> Any:
    if dtype.name in EXTENSION:
        return dtype.name
    if dtype.hasobject or type(dtype).__name__ == 'StringDType':
        raise MessageError(
            f'Arrays of dtype {dtype} have no raw buffer and cannot be sent. '
            f'Convert to numbers or fixed-width strings, or send a list.'
        )
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return {'base': _to_plain(base), 'shape': list(shape)}
    if dtype.names is None:
        return dtype.str
    fields = [(name, *dtype.fields[name][:2]) for name in dtype.names]  # type: ignore[index]
    return {
        'names': [name for name, _, _ in fields],
        'formats': [_to_plain(field) for _, field, _ in fields],
        'offsets': [offset for _, _, offset in fields],
        'itemsize': dtype.itemsize,
    }


def _from_plain(plain: Any, nesting: int) -> np.dtype:
    if nesting == 0:
        raise ValueError('nested too deeply')
    if isinstance(plain, str):
        return _from_name(plain)
    if not isinstance(plain, dict):
        raise TypeError('neither a name nor a description')
    if 'base' in plain:
        shape = tuple(int(n) for n in plain['shape'])
        return np.dtype((_from_plain(plain['base'], nesting - 1), shape))
    if len(plain['names']) > MAX_FIELDS:
        raise ValueError('too many fields')
    formats = [_from_plain(x, nesting - 1) for x in plain['formats']]
    fields: Any = {**plain, 'formats': formats}
    return np.dtype(fields)


def _from_name(name: str) -> np.dtype:
    if name in EXTENSION:
        import ml_dtypes  # Only needed for such arrays.

        return np.dtype(getattr(ml_dtypes, name))
    dtype = np.dtype(name)
    # Names such as 'object' or 'i8,f4' would reach more of NumPy than is ever sent.
    if dtype.str != name or dtype.hasobject:
        raise ValueError('not the name of a plain dtype')
    return dtype
