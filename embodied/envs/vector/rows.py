"""Rows of vector environments: members, last rows beside first ones, host arrays."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from ...core.base import Batch, Env
from ...core.errors import ConfigError

__all__ = ['FINAL', 'Final', 'members_of', 'on_rows', 'split_final', 'to_host']

FINAL = 'final'  # key of last rows beside the rows of all members

Rows = dict[str, Any]


class Final(NamedTuple):
    """Last rows of episodes whose members have begun new ones in the same step."""

    members: np.ndarray  # [m], each member once
    rows: Batch  # [m, ...] per key


def members_of(env: Any) -> int:
    """N of a vector environment, 0 for a single one."""
    inner = env
    while hasattr(type(inner), 'change_obs'):  # of wrappers
        inner = inner.env
    if isinstance(inner, Env) or not hasattr(inner, 'num'):
        return 0
    num = inner.num
    if isinstance(num, bool) or not isinstance(num, int | np.integer) or num < 1:
        raise ConfigError(
            f'{type(inner).__name__}.num is {num!r}. It must be the number of members '
            f'of a vector environment, at least 1.'
        )
    return int(num)


def split_final(obs: Mapping[str, Any]) -> tuple[Rows, Final | None]:
    """Rows of all members, and the last rows beside them, if there are any."""
    rows = dict(obs)
    final = rows.pop(FINAL, None)
    if final is None or not len(final[0]):
        return rows, None
    members, last = final
    return rows, Final(np.asarray(members), dict(last))


def on_rows(change: Callable[[Rows], Rows], obs: Mapping[str, Any]) -> Rows:
    """Applies `change` to the rows of all members, and to the last rows beside them."""
    if FINAL not in obs:
        return change(dict(obs))
    rows, final = split_final(obs)
    rows = change(rows)
    if final is not None:
        rows[FINAL] = final._replace(rows=change(final.rows))
    return rows


def to_host(tree: Any) -> Any:
    """Arrays of JAX and torch in dicts and tuples as NumPy arrays.

    Those on the host are not copied, those on a device are copied once.
    """
    _begin_copies(tree)
    return _fetch(tree)


def _begin_copies(tree: Any) -> None:
    """Lets the arrays of JAX travel at the same time."""
    if isinstance(tree, Mapping | tuple | list):
        for part in tree.values() if isinstance(tree, Mapping) else tree:
            _begin_copies(part)
    elif hasattr(tree, 'copy_to_host_async'):
        tree.copy_to_host_async()


def _fetch(tree: Any) -> Any:
    if isinstance(tree, Mapping):
        return {key: _fetch(value) for key, value in tree.items()}
    if isinstance(tree, Final):
        return Final(*map(_fetch, tree))
    if isinstance(tree, tuple | list):
        return tuple(map(_fetch, tree))
    if hasattr(tree, 'detach'):  # torch
        tree = tree.detach().cpu()
        return np.from_dlpack(tree) if hasattr(tree, '__dlpack__') else tree.numpy()
    return np.asarray(tree)
