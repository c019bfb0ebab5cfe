"""Stream over a function or a foreign iterator that has no position to keep."""

import functools
from collections.abc import Callable, Iterator
from typing import Any

from embodied.core import base

__all__ = ['Stateless', 'load_stream', 'save_stream']


class Stateless(base.Stream):
    """Each `next` calls `fn(*args, **kwargs)`; there is nothing to save."""

    def __init__(self, fn: Callable | Iterator, *args: Any, **kwargs: Any):
        call = fn if callable(fn) else fn.__next__
        self._fn = functools.partial(call, *args, **kwargs)

    def __next__(self) -> Any:
        return self._fn()

    def save(self) -> None:
        return None

    def load(self, data: Any) -> None:
        pass


def save_stream(source: Any) -> Any:
    """Position of a source; generators and other plain iterators have none."""
    return source.save() if hasattr(source, 'save') else None


def load_stream(source: Any, data: Any) -> None:
    if hasattr(source, 'load'):
        source.load(data)
