"""Columnar: messages of one layout as one batch and back, not one by one.

Requests to a batched method mostly share their schema, and then the place of every
leaf in their data. Joined, they are a table with one row per message:

    row 0   | image ........ | reward | is_first | padding |
    row 1   | image ........ | reward | is_first | padding |

Each leaf is a column, cut out for the whole batch at once. Replies go the other way.
"""

import functools
from typing import Any, NamedTuple

import numpy as np

from ..codec import trees
from ..codec.schemas import DICT, LIST, TUPLE, Branch, Leaf, parse_schema
from ..codec.values import Encoded, encode

__all__ = ['Layout', 'gather', 'layout_of', 'scatter']


class Column(NamedTuple):
    """Where a leaf is in the data of a message."""

    offset: int
    dtype: np.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def of(self, table: Any, count: int, width: int) -> np.ndarray:
        """This leaf of all messages, [count, *shape], as a view."""
        return np.ndarray(
            (count, *self.shape),
            self.dtype,
            table,
            self.offset,
            (width, *self.strides),
        )


class Layout(NamedTuple):
    """All leaves of a message; there are only small arrays."""

    structure: tuple
    columns: tuple[Column, ...]
    width: int


@functools.lru_cache(maxsize=256)
def layout_of(schema: bytes) -> Layout | None:
    """The layout of messages with this schema, None if they have none."""
    root, size = parse_schema(schema)
    columns: list[Column] = []
    structure = None if size is None else _walk(root, columns)
    if structure is None or not columns:
        return None
    assert size is not None
    return Layout(structure, tuple(columns), size)


def gather(layout: Layout, data: list, rows: int) -> Any:
    """The value with leaves [rows of all messages, ...]; None if they have no table."""
    if any(len(message) != layout.width for message in data):
        return None
    if rows and any(column.shape[:1] != (rows,) for column in layout.columns):
        return None
    table, count = b''.join(data), len(data)
    leaves = []
    for column in layout.columns:
        leaf = column.of(table, count, layout.width)
        shape = (count * rows, *column.shape[1:]) if rows else leaf.shape
        leaves.append(np.ascontiguousarray(leaf).reshape(shape))
    return trees.unflatten(layout.structure, leaves)


def scatter(value: Any, count: int, rows: int) -> list[Encoded] | None:
    """One encoded reply per message; None if the value has no layout."""
    leaves, structure = trees.flatten(value)
    shape = (count, rows) if rows else (count,)
    if any(np.shape(leaf)[:1] != (count * max(rows, 1),) for leaf in leaves):
        return None
    arrays = [np.asarray(leaf) for leaf in leaves]
    arrays = [array.reshape(*shape, *array.shape[1:]) for array in arrays]
    first = trees.unflatten(structure, [a[0] for a in arrays])
    schema, _, _, large = encode(first)
    layout = layout_of(schema)
    if layout is None or large:
        return None
    table = bytearray(count * layout.width)
    for column, array in zip(layout.columns, arrays, strict=True):
        column.of(table, count, layout.width)[...] = array
    view, width = memoryview(table), layout.width
    starts = range(0, count * width, width)
    return [Encoded(schema, [view[at : at + width]], width, []) for at in starts]


def _walk(node: Leaf | Branch, columns: list[Column]) -> tuple | None:
    """Structure of a node, after adding its leaves; None if it has no layout."""
    if isinstance(node, Branch):
        parts = [_walk(child, columns) for child in node.children]
        if any(part is None for part in parts):
            return None
        kinds = {DICT: dict, LIST: list, TUPLE: tuple}
        return (kinds[node.kind], node.keys, tuple(parts))
    assert node.dtype is not None
    if not node.nbytes or node.dtype.kind in 'SU':
        return None
    strides = np.ndarray(node.shape, node.dtype, bytes(node.nbytes)).strides
    columns.append(Column(node.offset, node.dtype, node.shape, strides))
    return ()
