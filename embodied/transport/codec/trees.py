"""Trees: nested dicts, lists and tuples taken apart into leaves and put together."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

__all__ = ['flatten', 'unflatten']


def flatten(value: Any) -> tuple[list[Any], tuple]:
    """Leaves in order, and a hashable structure for `unflatten`."""
    leaves: list[Any] = []
    return leaves, _structure(value, leaves)


def unflatten(structure: tuple, leaves: Iterable[Any]) -> Any:
    """The value with this structure and these leaves."""
    return _build(structure, iter(leaves))


def _structure(value: Any, leaves: list[Any]) -> tuple:
    if isinstance(value, Mapping):
        keys = tuple(value)
        return (dict, keys, tuple(_structure(value[k], leaves) for k in keys))
    if isinstance(value, (list, tuple)):
        kind = list if isinstance(value, list) else tuple
        return (kind, (), tuple(_structure(child, leaves) for child in value))
    leaves.append(value)
    return ()


def _build(structure: tuple, leaves: Iterator[Any]) -> Any:
    if not structure:
        return next(leaves)
    kind, keys, children = structure
    values = [_build(child, leaves) for child in children]
    return dict(zip(keys, values, strict=True)) if kind is dict else kind(values)
