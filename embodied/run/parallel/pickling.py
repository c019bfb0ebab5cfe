"""Pickling: the `make_*` callables of a run on their way to another process."""

import sys
from collections.abc import Callable
from typing import Any

import cloudpickle

from ...core.errors import ConfigError

__all__ = ['pack', 'unpack']

# Pickled functions contain bytecode, which differs from one minor version to the next.
HEADER = b'factory for python '
VERSION = f'{sys.version_info.major}.{sys.version_info.minor}'.encode()


def pack(make: Callable[..., Any] | bytes) -> bytes:
    """Bytes that `unpack` turns back into the callable, in any process."""
    if isinstance(make, bytes):
        return make
    return HEADER + VERSION + b'\n' + cloudpickle.dumps(make)


def unpack(make: Callable[..., Any] | bytes) -> Callable[..., Any]:
    """The callable itself, which may come as bytes of `pack` or of cloudpickle."""
    if not isinstance(make, bytes):
        return make
    if make.startswith(HEADER):
        version, _, make = make.removeprefix(HEADER).partition(b'\n')
        if version != VERSION:
            raise ConfigError(
                f'A factory was packed by Python {version.decode()}, this is Python '
                f'{VERSION.decode()}. Start all processes of a run with one version.'
            )
    return cloudpickle.loads(make)
