"""Names of the golden file for the parameters of our networks, and values by them."""

import jax
import jax.numpy as jnp
import numpy as np

from dreamerv3.agent.model import Nets
from dreamerv3.api.reference_names import reference_name
from embodied.jax.tree import Tree

__all__ = ['by_golden_name', 'with_golden_values']


def by_golden_name(tree, nets: Nets) -> dict[str, np.ndarray]:
    """Leaves of a tree like `nets`, or of {'slow': ...}, by the names of the file."""
    names = (reference_name(name, nets) for name in Tree(tree).names)
    return dict(zip(names, map(np.asarray, jax.tree.leaves(tree)), strict=True))


def with_golden_values(tree, values: dict[str, np.ndarray], nets: Nets):
    """The same tree with all its leaves replaced by the values of their names."""
    structure = Tree(tree)
    leaves = [values[reference_name(name, nets)] for name in structure.names]
    assert [x.shape for x in leaves] == [x.shape for x in structure.shapes]
    return structure.unflatten([jnp.asarray(x, jnp.float32) for x in leaves])
