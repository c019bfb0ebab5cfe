"""Optional packages: whether they are there, and what to install when not."""

import importlib
import importlib.util
import sys
from types import ModuleType

from ..core import manual
from ..core.errors import MissingExtraError

__all__ = ['advice', 'check', 'installed', 'require']

PAGE = 'your_environment.md'
# What pip cannot bring together with our packages: where to read about it.
BY_HAND = {
    'procgen': 'procgen',
    'dmlab': 'dmlab-and-minecraft',
    'minecraft': 'dmlab-and-minecraft',
}
# Extras that leave their package out on newer Pythons (markers in pyproject.toml).
NEWEST_PYTHON = {'dmc': (3, 12), 'memorymaze': (3, 12)}


def installed(module: str) -> bool:
    """Whether the top-level module could be imported, without importing it."""
    return importlib.util.find_spec(module) is not None


def advice(extra: str, python: tuple[int, int] = sys.version_info[:2]) -> str:
    """How to get what an extra stands for, with this version of Python."""
    if python > NEWEST_PYTHON.get(extra, python):
        newest, here = ('.'.join(map(str, x)) for x in (NEWEST_PYTHON[extra], python))
        return (
            f'It needs labmaze, which cannot be installed with Python {here}: use '
            f"Python {newest} and pip install 'dreamer-parallel[{extra}]'. "
            f'{manual.page(f"{PAGE}#python-313")} says what else is possible.'
        )
    if extra in BY_HAND:
        place = manual.page(f'{PAGE}#{BY_HAND[extra]}')
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
