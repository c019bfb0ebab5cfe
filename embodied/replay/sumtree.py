"""Sum tree in one array: draws leaves in proportion to their weights."""

import numpy as np

from embodied.core.base import Array

__all__ = ['SumTree']


class SumTree:
    """Node n has the children 2n and 2n + 1; the leaves fill the second half.

    Every inner node is recomputed from its children, never by differences, so equal
    leaves give equal trees.
    """

    def __init__(self, leaves: int):
        self._size = 1 << max(0, leaves - 1).bit_length()
        self._nodes = np.zeros(2 * self._size, np.float64)

    @property
    def total(self) -> float:
        return float(self._nodes[1])

    @property
    def nbytes(self) -> int:
        return self._nodes.nbytes

    def __getitem__(self, leaves: Array) -> Array:
        return self._nodes[self._size + leaves]

    def set(self, leaves: Array, weights: Array) -> None:
        """Sets the weights [n] of leaves [n]; without repeated leaves."""
        if not len(leaves):
            return
        nodes = self._size + np.sort(leaves)
        self._nodes[self._size + leaves] = weights
        while nodes[0] > 1:
            nodes = nodes >> 1
            nodes = nodes[np.flatnonzero(np.diff(nodes, prepend=0))]
            self._nodes[nodes] = self._nodes[2 * nodes] + self._nodes[2 * nodes + 1]

    def fill(self, weights: Array) -> None:
        """Sets all leaves from the front at once."""
        nodes, size = self._nodes, self._size
        nodes[size : size + len(weights)] = weights
        nodes[size + len(weights) :] = 0
        while size > 1:
            half = size // 2
            nodes[half:size] = (
                nodes[size : 2 * size : 2] + nodes[size + 1 : 2 * size : 2]
            )
            size = half

    def find(self, fractions: Array) -> Array:
        """Leaves at fractions [n] in [0, 1) of the total weight, which is positive."""
        weights = fractions * self._nodes[1]
        nodes = np.ones(len(fractions), np.int64)
        while nodes[0] < self._size:
            nodes = 2 * nodes
            left = self._nodes[nodes]
            # Rounding may leave a remainder for an empty side; never go there.
            right = (weights >= left) & (self._nodes[nodes + 1] > 0)
            weights = np.where(right, weights - left, np.minimum(weights, left))
            nodes = nodes + right
        return nodes - self._size
