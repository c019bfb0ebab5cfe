"""Selector by age: the probability of a sequence follows from how new it is."""

from collections.abc import Sequence

import numpy as np

from embodied.core.base import Array
from embodied.core.errors import ConfigError

from ..storage.schema import ORDER
from .index import NONE, join
from .selector import Selector

__all__ = ['Recency']

# Draws that hit a row without an item are repeated; after that the exact way is taken.
ATTEMPTS = 16


class Recency(Selector):
    """Draws ages with the given unnormalized probabilities, newest first.

    The age of an item is the number of rows added after the row that completed it. As
    long as fewer rows are there than probabilities, these are stretched over them.
    """

    def __init__(self, probs: Sequence[float] | Array):
        probs = np.asarray(probs, np.float64)
        if probs.ndim != 1 or not len(probs) or not np.isfinite(probs).all():
            raise ConfigError('Recency needs a list of finite probabilities by age.')
        if (probs < 0).any() or probs[0] < probs[-1] or probs[0] == 0:
            raise ConfigError(
                f'Recency got probabilities from {probs[0]} (newest) to {probs[-1]} '
                f'(oldest): they must be at least 0 and not favor the oldest.'
            )
        self._sums = probs.cumsum() / probs.sum()
        self._starts = np.full(1024, NONE)  # by order of the completing row, a ring

    def draw(self, rng: np.random.Generator, count: int, train: bool) -> Array:
        result = np.full(count, NONE)
        missing = np.arange(count)
        for _ in range(ATTEMPTS):
            result[missing] = self._at(self._ages(rng, len(missing)))
            missing = missing[~self.store.index.valid(result[missing])]
            if not len(missing):
                return result
        result[missing] = self._exactly(rng, len(missing))
        return result

    def added(self, positions: Array, starts: Array) -> None:
        newest = self.store.next_order
        self._make_room(newest - self.store.oldest() + len(starts))
        orders = np.arange(newest - len(starts), newest)
        self._starts[orders % len(self._starts)] = starts

    def rebuild(self) -> None:
        self._starts = np.full(1024, NONE)
        self._make_room(self.store.next_order - self.store.oldest() + 1)
        index = self.store.index
        for row in np.flatnonzero(index.table['live']).tolist():
            record = index.table[row]
            here = np.arange(record['first'], record['stop'])
            if len(here):
                starts = join(row + index.base, here)
                ends = index.shift(starts, index.length - 1)
                orders = self.store.read(ORDER.name, ends)
                self._starts[orders % len(self._starts)] = starts

    def _ages(self, rng: np.random.Generator, count: int) -> Array:
        rows = self.store.next_order - self.store.oldest()
        ages = np.searchsorted(self._sums, rng.random(count), 'right')
        ages = np.minimum(ages, len(self._sums) - 1)
        return ages * rows // len(self._sums) if rows < len(self._sums) else ages

    def _at(self, ages: Array) -> Array:
        orders = self.store.next_order - 1 - ages
        return self._starts[orders % len(self._starts)]

    def _exactly(self, rng: np.random.Generator, count: int) -> Array:
        rows = self.store.next_order - self.store.oldest()
        starts = self._at(np.arange(rows))
        starts = starts[self.store.index.valid(starts)]
        ages = self._ages(rng, count) * len(starts) // max(rows, 1)
        return starts[np.minimum(ages, len(starts) - 1)]

    def _make_room(self, rows: int) -> None:
        old = self._starts
        if rows <= len(old):
            return
        size = len(old)
        while size < rows:
            size *= 2
        newest = self.store.next_order
        orders = np.arange(max(0, newest - len(old)), newest)
        self._starts = np.full(size, NONE)
        self._starts[orders % size] = old[orders % len(old)]
