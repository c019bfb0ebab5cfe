"""Ahead: the next item of an iterator, taken while the one before is in use."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

__all__ = ['Ahead']

Item = TypeVar('Item')


class Ahead(Iterator[Item]):
    """Advances the iterator in a thread, and no further than one item."""

    def __init__(self, source: Iterator[Item]):
        self._source = source
        self._pool = ThreadPoolExecutor(1, 'ahead')
        self._future = self._pool.submit(next, source)

    def __next__(self) -> Item:
        item = self._future.result()
        self._future = self._pool.submit(next, self._source)
        return item
