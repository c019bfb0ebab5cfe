"""Optional packages: what an engine needs beyond the core dependencies."""

import importlib
from types import ModuleType

from ....core.errors import MissingExtraError

__all__ = ['require']


def require(package: str, extra: str) -> ModuleType:
    """Imports a package; raises an error that says what to install."""
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package.partition('.')[0]:
            raise
        raise MissingExtraError(
            f"--engine {extra} needs the package {package}, which is in the '{extra}' "
            f"extra: pip install 'dreamer-parallel[{extra}]'"
        ) from error
