"""Unpickling of data that may come from elsewhere: arrays and plain values, no code.

A pickle names functions and classes, and loading it calls them. Unless it is trusted,
only names that build arrays, numbers and containers are looked up. All other names are
refused before anything of them is imported.
"""

import contextlib
import contextvars
import io
import pickle
import re
from collections.abc import Iterator
from typing import Any, BinaryIO

from .errors import TrustError

__all__ = ['UntrustedGlobal', 'load', 'loads', 'trusted', 'trusting']

# Everything that the states of our agents, replays, loops and environments consist of.
HARMLESS = re.compile(
    r'numpy(\._?core)?(\.multiarray|\.numeric)?\.'
    r'(_reconstruct|_frombuffer|ndarray|dtype|scalar)'
    r'|numpy\.dtypes\.\w+'
    r'|ml_dtypes\.(bfloat16|u?int[124]|float\w+)'
    r'|jax\._src\.array\._reconstruct_array'
    r'|builtins\.(set|frozenset|complex|bytearray|slice|range)'
    r'|collections\.(OrderedDict|deque)'
    r'|fractions\.Fraction'
    r'|dreamerv3\.agent\.(replay_context\.Carry|networks\.rssm\.State)'
)

# Where the modules of version 0.1.0 are now, as far as its pickles name them.
_SUITES = ('atari', 'bsuite', 'crafter', 'dmc', 'dmlab', 'memory_maze', 'minecraft')
MOVED = {
    'dreamerv3.context': 'dreamerv3.agent.replay_context',
    'dreamerv3.rssm': 'dreamerv3.agent.networks.rssm',
    **{f'embodied.envs.{x}': f'embodied.envs.builtin.{x}' for x in ('catch', 'reach')},
    'embodied.envs.dummy': 'embodied.envs.builtin.dummy',
    'embodied.envs.from_dm': 'embodied.envs.adapters.from_dm',
    'embodied.envs.from_gym': 'embodied.envs.adapters.from_gym',
    'embodied.envs.minigrid': 'embodied.envs.suites.minigrid',
    'embodied.envs.procgen': 'embodied.envs.suites.procgen',
    **{f'embodied.envs.{x}': f'embodied.envs.suites.{x}' for x in _SUITES},
}

_trusted: contextvars.ContextVar[bool] = contextvars.ContextVar('trusted', default=True)


class UntrustedGlobal(pickle.UnpicklingError):
    """The pickle names something that could run code."""


def load(file: BinaryIO, trust: bool = False) -> Any:
    """The content of a pickle; UntrustedGlobal unless it is plain data or trusted."""
    return (_Unpickler if trust else _PlainUnpickler)(file).load()


def loads(data: bytes, trust: bool = False) -> Any:
    """The same for bytes; TrustError unless they are plain data or trusted."""
    try:
        return load(io.BytesIO(data), trust)
    except UntrustedGlobal as error:
        raise TrustError(
            f'A saved state {error}. Loading it would run code, and it was not written '
            'here by this user. Give --trust if you trust its author.'
        ) from error


@contextlib.contextmanager
def trusting(trust: bool) -> Iterator[None]:
    """A context in which `trusted` tells whether the data being loaded is trusted."""
    token = _trusted.set(trust)
    try:
        yield
    finally:
        _trusted.reset(token)


def trusted() -> bool:
    """Whether pickles inside of the data being loaded may run code."""
    return _trusted.get()


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        return super().find_class(MOVED.get(module, module), name)


class _PlainUnpickler(_Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        module = MOVED.get(module, module)
        if not HARMLESS.fullmatch(f'{module}.{name}'):
            raise UntrustedGlobal(f'asks for {module}.{name}')
        return super().find_class(module, name)
