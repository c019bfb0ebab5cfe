"""Selectors: which sequences are drawn from replay.

    Uniform      every sequence alike
    Prioritized  by the priorities that training sends back
    Recency      by age
    Mixture      each draw by one of several

`Replay` binds a selector to its store and reports what is added, evicted and updated.
Draws use the random generator of the replay, so one seed makes them all repeat.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from embodied.core.base import Array
from embodied.core.errors import ConfigError

from ..storage.store import Evicted, Store
from .index import NONE
from .prioritized import Prioritized
from .recency import Recency
from .selector import Selector

__all__ = ['Mixture', 'Prioritized', 'Recency', 'Selector', 'Uniform']


class Uniform(Selector):
    """Every item is equally likely."""

    def draw(self, rng: np.random.Generator, count: int, train: bool) -> Array:
        index = self.store.index
        return index.item(rng.integers(0, len(index), count))


class Mixture(Selector):
    """Each draw comes from one of the selectors, chosen by the given fractions."""

    def __init__(
        self, selectors: Mapping[str, Selector], fractions: Mapping[str, float]
    ):
        if set(selectors) != set(fractions):
            raise ConfigError(
                f'Mixture got the selectors {sorted(selectors)} and fractions of '
                f'{sorted(fractions)}: every selector needs one fraction.'
            )
        shares = {key: float(fractions[key]) for key in sorted(selectors)}
        if min(shares.values()) < 0 or abs(sum(shares.values()) - 1) > 1e-6:
            raise ConfigError(
                f'The fractions of a mixture must be at least 0 and sum to 1, but they '
                f'are {shares}.'
            )
        self._parts = [selectors[key] for key in shares if shares[key] > 0]
        self._probs = np.array([share for share in shares.values() if share > 0])
        self._probs /= self._probs.sum()

    def bind(self, store: Store) -> None:
        super().bind(store)
        for part in self._parts:
            part.bind(store)

    def draw(self, rng: np.random.Generator, count: int, train: bool) -> Array:
        choice = rng.choice(len(self._parts), count, p=self._probs)
        starts = np.full(count, NONE)
        for i, part in enumerate(self._parts):
            mine = np.flatnonzero(choice == i)
            if len(mine):
                starts[mine] = part.draw(rng, len(mine), train)
        return starts

    def added(self, positions: Array, starts: Array) -> None:
        for part in self._parts:
            part.added(positions, starts)

    def evicted(self, ranges: Sequence[Evicted]) -> None:
        for part in self._parts:
            part.evicted(ranges)

    def prioritize(self, firsts: Array, priorities: Array) -> None:
        for part in self._parts:
            part.prioritize(firsts, priorities)

    def rebuild(self) -> None:
        for part in self._parts:
            part.rebuild()

    def stats(self) -> dict[str, Any]:
        return {k: v for part in self._parts for k, v in part.stats().items()}
