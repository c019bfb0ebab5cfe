"""Sum tree in a few arrays: draws leaves in proportion to their weights."""

import numpy as np

from embodied.core.base import Array

__all__ = ['SumTree']

BITS = 4
FAN = 1 << BITS  # children per node: few levels, each of them one array operation


class SumTree:
    """Level 0 holds the leaves; node n of a level sums the nodes FAN * n + i below it.

    Every node is recomputed from its children, never by differences, so equal leaves
    give equal trees.
    """

    def __init__(self, leaves: int):
        sizes = [FAN * max(1, -(-leaves // FAN))]
        while sizes[-1] > FAN:
            sizes.append(FAN * -(-sizes[-1] // FAN**2))
        self._levels = [np.zeros((size // FAN, FAN), np.float64) for size in sizes]

    @property
    def total(self) -> float:
        return float(self._levels[-1].cumsum()[-1])

    def set(self, leaves: Array, weights: Array) -> None:
        """Sets the weights [n] of leaves [n]; a leaf that repeats has one weight."""
        self._levels[0].reshape(-1)[leaves] = weights
        nodes = np.unique(leaves >> BITS)
        for below, level in zip(self._levels, self._levels[1:], strict=False):
            level.reshape(-1)[nodes] = below[nodes].cumsum(1)[:, -1]
            nodes = np.unique(nodes >> BITS)

    def find(self, fractions: Array) -> Array:
        """Leaves at fractions [n] in [0, 1) of the total weight, which is positive."""
        weights = fractions * self.total
        nodes = np.zeros(len(fractions), np.int64)
        rows = np.arange(len(fractions))
        for level in reversed(self._levels):
            children = level[nodes]
            sums = children.cumsum(1)
            child = (sums <= weights[:, None]).sum(1)
            # Rounding may point past the end; the last child with weight is meant.
            last = FAN - 1 - (children[:, ::-1] > 0).argmax(1)
            child = np.minimum(child, last)
            weights = weights - (sums[rows, child] - children[rows, child])
            nodes = nodes * FAN + child
        return nodes
