"""Layout: where the tensors of a tree lie in one vector.

An optimizer over one vector is a handful of kernels; over the 160 tensors of an agent
it is two thousand, which cost 4 ms per update on an H200 and most of the compile time.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

__all__ = ['Layout']

CHUNK = 1024  # elements; each tensor begins at a multiple, so chunks are of one tensor


class Layout:
    """Places for the leaves of a tree of arrays, one after the other.

    Tensors are padded with zeros to whole chunks, the last one so that `shards` devices
    get the same number of them. Vectors are [size] float32.
    """

    def __init__(self, example: Any, shards: int = 1):
        leaves, self._treedef = jax.tree.flatten(example)
        self.tensors = len(leaves)
        self._shapes = [leaf.shape for leaf in leaves]
        chunks = [max(1, -(-math.prod(shape) // CHUNK)) for shape in self._shapes]
        self.end = CHUNK * sum(chunks)  # of the last tensor without that padding
        chunks[-1] += -sum(chunks) % shards
        self._starts = CHUNK * np.cumsum([0, *chunks[:-1]])
        self._owner = np.repeat(np.arange(len(chunks), dtype=np.int32), chunks)
        self.size = CHUNK * len(self._owner)

    def join(self, tree: Any) -> jax.Array:
        """The vector that holds the tree's tensors."""
        stops = [*self._starts[1:], self.size]
        parts: list[jax.Array] = []
        for leaf, start, stop in zip(
            jax.tree.leaves(tree), self._starts, stops, strict=True
        ):
            parts.append(leaf.astype(jnp.float32).ravel())
            if padding := int(stop - start) - leaf.size:
                parts.append(jnp.zeros(padding, jnp.float32))
        return jnp.concatenate(parts)

    def split(self, vector: jax.Array) -> Any:
        """The tree again, the inverse of join."""
        leaves = [
            vector[start : start + math.prod(shape)].reshape(shape)
            for start, shape in zip(self._starts, self._shapes, strict=True)
        ]
        return jax.tree.unflatten(self._treedef, leaves)

    def spread(self, values: np.ndarray) -> jax.Array:
        """The vector in which each tensor is filled with its value [tensors]."""
        return self.scale(jnp.ones(self.size), values)

    def norms(self, vector: jax.Array) -> jax.Array:
        """Euclidean norm of each tensor [tensors]."""
        sums = jnp.square(vector).reshape(-1, CHUNK).sum(1)
        # A masked sum instead of a scatter, whose order of additions varies on GPUs.
        mine = self._owner == np.arange(len(self._shapes), dtype=np.int32)[:, None]
        return jnp.sqrt(jnp.where(mine, sums, 0).sum(1))

    def scale(self, vector: jax.Array, factors: jax.Array | np.ndarray) -> jax.Array:
        """The vector with each tensor multiplied by its factor [tensors]."""
        chunks = vector.reshape(-1, CHUNK) * factors[self._owner][:, None]
        return chunks.reshape(-1)
