"""Policy: calls the agent for rows of environments, in batches of few sizes."""

import threading
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...core import base
from ...core.errors import DreamerError
from .carries import make_carries
from .vitals import COMPILING, vitals

__all__ = ['Policy', 'bucket_sizes']


class Policy:
    """Acts for the environments in slots 1 to `slots`, up to `batch` rows at a time.

    Partial batches are padded to one of few sizes, because a program is compiled for
    each, and stripped again. One call runs at a time.
    """

    def __init__(self, agent: base.Agent, slots: int, batch: int):
        self._carries = make_carries(agent, slots)
        self._sizes = bucket_sizes(batch)
        self._lock = threading.Lock()
        self._compiled: set[tuple[int, str]] = set()  # sizes and modes called before

    def __call__(
        self, slots: base.Array, renewed: base.Array, obs: base.Batch, mode: str
    ) -> tuple[base.Batch, base.Batch]:
        """Acts and outs [n, ...] for obs [n, ...]; `renewed` slots start anew."""
        count = len(slots)
        size = next(size for size in self._sizes if size >= count)
        if size > count:
            # A copy of a row is always a legal observation.
            rows = np.minimum(np.arange(size), count - 1)
            obs = {k: v[rows] for k, v in obs.items()}
            slots = np.concatenate([slots, np.zeros(size - count, slots.dtype)])
        with self._lock:
            if len(renewed):
                self._carries.renew(renewed)
            with vitals().busy('' if (size, mode) in self._compiled else COMPILING):
                acts, outs = self._carries.act(slots, obs, mode)
            self._compiled.add((size, mode))
        acts = {k: v for k, v in acts.items() if k != 'reset'}
        return _strip(acts, size, count), _strip(outs, size, count)


def bucket_sizes(batch: int) -> tuple[int, ...]:
    """Powers of two below `batch`, and `batch` itself."""
    return (*(2**i for i in range((batch - 1).bit_length())), batch)


def _strip(values: Mapping[str, Any], size: int, count: int) -> base.Batch:
    """The first `count` rows as NumPy arrays."""
    arrays = {k: np.asarray(v) for k, v in values.items()}
    for key, array in arrays.items():
        if array.shape[:1] != (size,):
            raise DreamerError(
                f"The policy returned '{key}' of shape {array.shape} for {size} rows. "
                f'The first dimension of all acts and outs must be the rows.'
            )
    return {k: v[:count] for k, v in arrays.items()}
