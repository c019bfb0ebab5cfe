"""Selector by priority: sequences are drawn in proportion to what training reported."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from embodied.core.base import Array
from embodied.core.errors import ConfigError, ReplayError

from ..storage.schema import PRIORITY
from ..storage.store import Evicted
from .index import NONE, join, split
from .selector import Selector
from .sumtree import SumTree

__all__ = ['Prioritized']

# Weight of an infinite priority: such items go first, and their number stays exact.
INFINITE = 1e30
MIN_RING = 64  # chunks


class Prioritized(Selector):
    """Weight of an item with step priorities p_0 .. p_{L-1}, w_i = p_i ** exponent:

        maxfrac * max(w) + (1 - maxfrac) * mean(w)

    initial: priority of steps that were never updated; infinity draws them first.
    zero_on_sample: the steps of a drawn item get priority 0 until they are updated.
    While all weights are zero, items are drawn uniformly.
    """

    def __init__(
        self,
        exponent: float = 1.0,
        maxfrac: float = 0.0,
        initial: float = 1.0,
        zero_on_sample: bool = False,
    ):
        if not 0 <= maxfrac <= 1:
            raise ConfigError(f'maxfrac={maxfrac} must lie between 0 and 1.')
        if not exponent >= 0 or not initial >= 0:
            raise ConfigError(
                f'exponent={exponent} and initial={initial} must be at least 0.'
            )
        self._exponent = float(exponent)
        self._maxfrac = float(maxfrac)
        self._initial = float(initial)
        self._zero_on_sample = bool(zero_on_sample)
        self._ring = 0  # chunks that have leaves in the tree
        self._steps = np.zeros(0, np.float32)  # priority of the row of each leaf
        self._tree = SumTree(1)

    def draw(self, rng: np.random.Generator, count: int, train: bool) -> Array:
        index = self.store.index
        if self._tree.total > 0:
            starts = self._positions(self._tree.find(rng.random(count)))
        else:
            starts = index.item(rng.integers(0, len(index), count))
        if self._zero_on_sample and train:
            self.prioritize(starts, np.zeros((count, index.length), np.float32))
        return starts

    def added(self, positions: Array, starts: Array) -> None:
        if self._make_room():
            return
        self._steps[self._leaves(positions)] = self._initial
        # The same insert may have evicted what it completed.
        self._weigh(starts[self.store.index.valid(starts)], 0, 1)

    def evicted(self, ranges: Sequence[Evicted]) -> None:
        for ordinal, start, stop in ranges:
            gone = join(ordinal, np.arange(start, stop))
            self._tree.set(self._leaves(gone), np.zeros(len(gone)))

    def prioritize(self, firsts: Array, priorities: Array) -> None:
        if not (priorities >= 0).all():
            raise ReplayError('Priorities must be at least 0 and not NaN.')
        span = priorities.shape[1]
        self.store.write(firsts, span, {PRIORITY.name: priorities})
        self._weigh(firsts, self.store.index.length - 1, span, priorities)

    def rebuild(self) -> None:
        self._ring = 0
        self._make_room()

    def stats(self) -> dict[str, Any]:
        return {'priority_total': self._tree.total}

    def _weigh(
        self, firsts: Array, before: int, span: int, priorities: Array | None = None
    ) -> None:
        """Weighs the items that start up to `before` rows before each of firsts [n].

        The last one starts `span` - 1 rows after it. priorities: new ones [n, span] of
        the rows from firsts on.
        """
        index = self.store.index
        offsets = np.arange(-before, span + index.length - 1)
        rows = index.shift(firsts[:, None], offsets)
        leaves = self._leaves(rows)
        if priorities is not None:
            self._steps[leaves[:, before : before + span]] = priorities
        steps = np.where(rows == NONE, 0, self._steps[leaves])
        starts = slice(0, before + span)
        valid = index.valid(rows[:, starts])
        weights = self._aggregate(steps.astype(np.float64))
        self._tree.set(leaves[:, starts][valid], weights[valid])

    def _aggregate(self, steps: Array) -> Array:
        """Weights [B, N] of the windows over step priorities [B, N + L - 1]."""
        length = self.store.index.length
        powers = np.minimum(steps**self._exponent, INFINITE)
        highest = _windows(np.maximum, powers, length)
        mean = _windows(np.add, powers, length) / length
        weights = self._maxfrac * highest + (1 - self._maxfrac) * mean
        return np.where(highest >= INFINITE, INFINITE, weights)

    def _make_room(self) -> bool:
        """Grows the tree with the number of chunks; returns whether it did."""
        index = self.store.index
        if index.span <= self._ring:
            return False
        # Untouched leaves cost no memory, so a bounded replay never grows twice.
        bound = (self.store.capacity or 0) // self.store.allocator.widest
        self._ring = max(MIN_RING, bound, index.span) * 5 // 4
        leaves = self._ring * self.store.allocator.widest
        self._steps = np.zeros(leaves, np.float32)
        self._tree = SumTree(leaves)
        for row in np.flatnonzero(index.table['live']).tolist():
            record = index.table[row]
            rows = join(row + index.base, np.arange(record['first'], record['fill']))
            steps = self.store.read(PRIORITY.name, rows)
            steps[np.isnan(steps)] = self._initial
            self._steps[self._leaves(rows)] = steps
        for row in np.flatnonzero(index.table['live']).tolist():
            record = index.table[row]
            count = int(record['stop'] - record['first'])
            if count > 0:
                first = join(row + index.base, record['first'])
                self._weigh(first[None], 0, count)
        return True

    def _leaves(self, positions: Array) -> Array:
        """Leaf of each row: chunks take turns in a ring. 0 for NONE."""
        ordinals, indices = split(positions)
        leaves = ordinals % self._ring * self.store.allocator.widest + indices
        return np.where(positions == NONE, 0, leaves)

    def _positions(self, leaves: Array) -> Array:
        index = self.store.index
        turn, indices = np.divmod(leaves, self.store.allocator.widest)
        return join(index.oldest + (turn - index.oldest) % self._ring, indices)


def _windows(combine: np.ufunc, values: Array, length: int) -> Array:
    """Combines each window of `length` along the last axis.

    From windows of 1, 2, 4, ... values; the order of operations within a window does
    not depend on what surrounds it, so equal windows give equal results.
    """
    count = values.shape[-1] - length + 1
    result, done, width = None, 0, 1
    while done < length:
        if length & width:
            part = values[..., done : done + count]
            result = part if result is None else combine(result, part)
            done += width
        values = combine(values[..., :-width], values[..., width:])
        width *= 2
    assert result is not None
    return result
