"""Optional packages: whether they are there, and what to install when not."""

import importlib
import importlib.util
from types import ModuleType

from ..core.errors import MissingExtraError

__all__ = ['check', 'installed', 'require']


def installed(module: str) -> bool:
    """Whether the top-level module could be imported, without importing it."""
    return importlib.util.find_spec(module) is not None


def check(module: str, extra: str) -> None:
    """Says which extra of this package brings the module, if it is missing."""
    if not installed(module):
        raise MissingExtraError(
            f'The package {module!r} is not installed. Install the extra that brings '
            f"it: pip install 'dreamer-parallel[{extra}]'."
        )


def require(module: str, extra: str) -> ModuleType:
    """Imports the module or says which extra of this package brings it."""
    check(module, extra)
    return importlib.import_module(module)
