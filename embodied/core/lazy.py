"""Lazy imports: a package whose names are imported on first use."""

import importlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

__all__ = ['importer']


def importer(
    package: str, homes: Mapping[str, str], modules: Iterable[str] = ()
) -> Callable[[str], Any]:
    """Returns the `__getattr__` of a package.

    homes: the module below the package that each name comes from. modules: those below
    the package that are names themselves, each by the last part of its path.
    """
    places = {path.rpartition('.')[2]: path for path in modules}

    def find(name: str) -> Any:
        if name in homes:
            return getattr(importlib.import_module(f'{package}.{homes[name]}'), name)
        if name in places:
            return importlib.import_module(f'{package}.{places[name]}')
        raise AttributeError(f"module '{package}' has no attribute '{name}'")

    return find
