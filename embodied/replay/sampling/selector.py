"""Selector: draws sequences, and is notified when the content of a store changes."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from embodied.core.base import Array

from ..storage.store import Evicted, Store

__all__ = ['Selector']


class Selector:
    """Draws starts of items. All state follows from the content of the store."""

    store: Store

    def bind(self, store: Store) -> None:
        """Called once, by the replay that uses this selector."""
        self.store = store

    def draw(self, rng: np.random.Generator, count: int, train: bool) -> Array:
        """Positions [count] of valid starts; the store has at least one.

        train: whether they are trained on; other draws must change nothing.
        """
        raise NotImplementedError('draw(rng, count, train) -> starts')

    def added(self, positions: Array, starts: Array) -> None:
        """Rows [n] were appended; each completed the item of its start, or NONE."""

    def evicted(self, ranges: Sequence[Evicted]) -> None:
        """Rows are gone, and the items that started there."""

    def prioritize(self, firsts: Array, priorities: Array) -> None:
        """Runs of rows from firsts [n] got new priorities [n, T]."""

    def rebuild(self) -> None:
        """Computes the state from the content of the store, after it was loaded."""

    def stats(self) -> dict[str, Any]:
        """Scalars for the log."""
        return {}
