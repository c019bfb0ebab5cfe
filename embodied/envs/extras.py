"""Optional packages: whether they are there, and what to install when not."""

import importlib
import importlib.util
from types import ModuleType

from ..core.errors import MissingExtraError

__all__ = ['advice', 'check', 'installed', 'require']

# What pip cannot bring together with our packages: where to read about it.
BY_HAND = {
    'procgen': 'procgen',
    'dmlab': 'dmlab-and-minecraft',
    'minecraft': 'dmlab-and-minecraft',
}


def installed(module: str) -> bool:
    """Whether the top-level module could be imported, without importing it."""
    return importlib.util.find_spec(module) is not None


def advice(extra: str) -> str:
    """How to get what an extra stands for."""
    if extra in BY_HAND:
        place = f'docs/your_environment.md#{BY_HAND[extra]}'
        return f'It has to be installed by hand: {place} says how.'
    return f"Install the extra that brings it: pip install 'dreamer-parallel[{extra}]'."


def check(module: str, extra: str) -> None:
    """Says which extra of this package brings the module, if it is missing."""
    if not installed(module):
        raise MissingExtraError(
            f'The package {module!r} is not installed. {advice(extra)}'
        )


def require(module: str, extra: str) -> ModuleType:
    """Imports the module or says which extra of this package brings it."""
    check(module, extra)
    return importlib.import_module(module)
