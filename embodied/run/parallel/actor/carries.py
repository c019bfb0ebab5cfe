"""Carries: what the policy remembers of each environment, by slot.

Slots are numbered from 1; slot 0 is scratch, for rows whose result is not used.
"""

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from ....core import base
from ....core.errors import DreamerError

__all__ = ['Carries', 'PolicyCarries', 'TableCarries', 'make_carries']


class Carries(Protocol):
    """The agent's policy together with the carries of all environments."""

    def renew(self, slots: base.Array) -> None:
        """Gives a fresh carry to slots whose environments are new."""

    def act(
        self, slots: base.Array, obs: base.Batch, mode: str
    ) -> tuple[base.Batch, base.Batch]:
        """Acts and outs [n, ...] for obs [n, ...] of the environments in `slots`."""

    def resize(self, count: int) -> None:
        """Makes room for slots up to `count`; new ones have to be renewed."""


def make_carries(agent: base.Agent, count: int) -> Carries:
    """Carries for slots up to `count`, kept by the agent itself if it can."""
    if hasattr(agent, 'init_table') and hasattr(agent, 'policy_rows'):
        return TableCarries(agent, count)
    return PolicyCarries(agent, count)


class TableCarries:
    """Carries in a table of the agent, which resets rows itself at `is_first`."""

    def __init__(self, agent: Any, count: int):
        self._agent = agent
        self._table = agent.init_table(1 + count)

    def renew(self, slots: base.Array) -> None:
        pass

    def act(
        self, slots: base.Array, obs: base.Batch, mode: str
    ) -> tuple[base.Batch, base.Batch]:
        self._table, acts, outs = self._agent.policy_rows(self._table, slots, obs, mode)
        return acts, outs

    def resize(self, count: int) -> None:
        if not hasattr(self._agent, 'resize_table'):
            raise DreamerError(
                f'The table of {type(self._agent).__name__} has no room for {count} '
                f'environments. Give run.envs as many, or give the agent a method '
                f'`resize_table(table, rows) -> table`.'
            )
        self._table = self._agent.resize_table(self._table, 1 + count)


class PolicyCarries:
    """One carry over all slots, in the form that `init_policy` returned.

    Each call of the policy gets the rows it needs, and each leaf in the same form:
    arrays stay where they are, on the host or on a device, lists stay lists.
    """

    def __init__(self, agent: base.Agent, count: int):
        self._agent = agent
        self._fresh = agent.init_policy(1)
        self._table = _map(_copy, agent.init_policy(1 + count))
        self._count = count

    def renew(self, slots: base.Array) -> None:
        for slot in slots:
            where = np.array([slot])
            put = lambda leaf, row, where=where: _put(leaf, where, row)
            self._table = _map(put, self._table, self._fresh)

    def act(
        self, slots: base.Array, obs: base.Batch, mode: str
    ) -> tuple[base.Batch, base.Batch]:
        carry = _map(lambda leaf: _take(leaf, slots), self._table)
        carry, acts, outs = self._agent.policy(carry, obs, mode=mode)
        self._table = _map(
            lambda leaf, rows: _put(leaf, slots, rows), self._table, carry
        )
        return acts, outs

    def resize(self, count: int) -> None:
        slots = np.arange(1 + count)
        slots[1 + self._count :] = 0  # Any carry will do.
        self._table = _map(lambda leaf: _take(leaf, slots), self._table)
        self._count = count


def _copy(leaf: Any) -> Any:
    """A copy that may be changed in place, where leaves can be."""
    if isinstance(leaf, list):
        return list(leaf)
    if not np.ndim(leaf):
        raise DreamerError(
            f'A leaf of the policy carry is a {type(leaf).__name__}: {leaf!r}. Leaves '
            f'must be arrays with one row per environment or lists with one entry per '
            f'environment, in dicts and tuples.'
        )
    return np.array(leaf) if isinstance(leaf, np.ndarray) else leaf


def _take(leaf: Any, slots: base.Array) -> Any:
    if isinstance(leaf, list):
        return [leaf[slot] for slot in slots]
    return leaf[slots]


def _put(leaf: Any, slots: base.Array, rows: Any) -> Any:
    """The leaf with new rows; where it can be changed in place, it is."""
    if len(rows) != len(slots):
        raise DreamerError(
            f'The policy got {len(slots)} rows of a carry and returned {len(rows)}.'
        )
    if isinstance(leaf, list):
        for slot, row in zip(slots, rows, strict=True):
            leaf[slot] = row
    elif isinstance(leaf, np.ndarray):
        leaf[slots] = rows
    else:  # Arrays of JAX are immutable.
        leaf = leaf.at[slots].set(rows)
    return leaf


def _map(fn: Callable[..., Any], tree: Any, *others: Any) -> Any:
    """Applies `fn` to each leaf; containers are dicts and tuples, named ones too."""
    if isinstance(tree, dict):
        _require(all(isinstance(x, dict) and x.keys() == tree.keys() for x in others))
        return {k: _map(fn, v, *(x[k] for x in others)) for k, v in tree.items()}
    if isinstance(tree, tuple):
        _require(all(isinstance(x, tuple) and len(x) == len(tree) for x in others))
        values = [_map(fn, *children) for children in zip(tree, *others, strict=True)]
        return type(tree)(*values) if hasattr(tree, '_fields') else tuple(values)
    return fn(tree, *others)


def _require(same: bool) -> None:
    if not same:
        raise DreamerError(
            'The policy returned a carry of another structure than it was given. It '
            'must keep that of init_policy: dicts with the same keys, tuples of the '
            'same length.'
        )
