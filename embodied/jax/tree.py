"""Tree: the structure of a state apart from its arrays; scalars as one vector."""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from embodied.core.errors import CheckpointError

__all__ = ['Packer', 'Tree']

REGEX = 'run.from_checkpoint_regex'  # the option by which users choose names
MODULE = 3  # parts of a name such as params.dyn.post


class Tree:
    """The structure of a tree of arrays, apart from the arrays.

    Programs take and return plain lists: flattening a list of 200 arrays costs a few
    microseconds per call, a tree of modules milliseconds.
    """

    def __init__(self, example: Any):
        paths, self._treedef = jax.tree_util.tree_flatten_with_path(example)
        keystr = jax.tree_util.keystr
        self.names = [keystr(path, simple=True, separator='.') for path, _ in paths]
        self.shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype) for _, x in paths]

    def flatten(self, tree: Any) -> list[jax.Array]:
        return jax.tree.leaves(tree)

    def unflatten(self, leaves: Sequence[Any]) -> Any:
        return jax.tree.unflatten(self._treedef, leaves)

    def save(self, leaves: Sequence[jax.Array]) -> dict[str, np.ndarray]:
        """Copies on the host by name; later updates do not reach them."""
        # np.asarray would alias the device's buffer on CPU, which gets donated.
        arrays = [np.array(leaf, copy=True) for leaf in leaves]
        return dict(zip(self.names, arrays, strict=True))

    def load(
        self,
        leaves: Sequence[jax.Array],
        data: Mapping[str, np.ndarray],
        regex: str | None = None,
    ) -> list[jax.Array]:
        """The leaves with those that `data` holds and the regex matches replaced."""
        wanted = [n for n in self.names if regex is None or re.search(regex, n)]
        self._check(wanted, data, regex)
        chosen = set(wanted)
        return [
            jnp.array(data[name], shape.dtype) if name in chosen else leaf
            for name, leaf, shape in zip(self.names, leaves, self.shapes, strict=True)
        ]

    def _check(
        self, wanted: Sequence[str], data: Mapping[str, np.ndarray], regex: str | None
    ) -> None:
        if not wanted:
            raise CheckpointError(
                f"No parameter matches {REGEX}='{regex}'. Names look like: "
                f'{", ".join(self.names[:3])}.'
            )
        shapes = dict(zip(self.names, self.shapes, strict=True))
        problems = {}
        for name in wanted:
            if name not in data:
                problems[name] = 'missing in the checkpoint'
            elif data[name].shape != shapes[name].shape:
                there, here = data[name].shape, shapes[name].shape
                problems[name] = f'{there} in the checkpoint, {here} here'
        if problems:
            listed = [f'{k}: {v}' for k, v in problems.items()]
            more = f' (and {len(problems) - 5} more)' if len(problems) > 5 else ''
            # A run that continues from its own save takes all of it.
            advice = '' if regex is None else _advice(problems, wanted)
            raise CheckpointError(
                f'The checkpoint does not fit this agent: {"; ".join(listed[:5])}'
                f'{more}. Use the same size and environment{advice}.'
            )


def _advice(problems: Collection[str], wanted: Sequence[str]) -> str:
    """The pattern that leaves out the modules with problems; '' if nothing is left."""
    modules = sorted({'.'.join(x.split('.')[:MODULE]) for x in problems})
    parts = '|'.join(map(re.escape, modules))
    pattern = rf'^(?!({parts})(\.|$))'
    if not any(re.search(pattern, name) for name in wanted):
        return ''
    return f", or take the modules that fit: --{REGEX} '{pattern}'"


class Packer:
    """Many scalars as one vector: one transfer from the device instead of dozens.

    Names are learned while the program that packs is traced.
    """

    def __init__(self) -> None:
        self.names: list[str] = []

    def pack(self, scalars: Mapping[str, jax.Array]) -> jax.Array:
        self.names = list(scalars)
        if not scalars:
            return jnp.zeros(0, jnp.float32)
        return jnp.stack([jnp.asarray(x, jnp.float32) for x in scalars.values()])

    def unpack(self, vector: jax.Array) -> dict[str, np.float32]:
        return dict(zip(self.names, np.asarray(vector), strict=True))
