"""Infos of vector environments of Gymnasium as keys `log/...` of observations."""

from collections.abc import Mapping, Sequence
from typing import Any

import elements
import numpy as np

from ...core.base import Batch, Spaces
from ...core.errors import ConfigError, SpaceError
from .rows import to_host

__all__ = ['MemberInfos']


class MemberInfos:
    """Picks the entries called `names`; a member without one of them counts as 0.

    The mask `_name` beside an entry says which members have it; without a mask all do.
    A name that no info has until an episode ends is a ConfigError, as of `Infos`.
    """

    def __init__(self, names: Sequence[str], num: int) -> None:
        self.spaces: Spaces = {f'log/{x}': elements.Space(np.float32) for x in names}
        self._names = tuple(names)
        self._num = num
        self._unseen = set(names)
        self._others: set[str] = set()

    def __call__(self, info: Mapping[str, Any], ends: bool = False) -> Batch:
        """Entries [N] by key. ends: an episode ends in these rows."""
        if self._unseen:
            self._unseen -= info.keys()
            self._others |= {x for x in info if not x.startswith(('_', 'final_'))}
            if ends and self._unseen:
                raise ConfigError(
                    f'No info of the first episode has {sorted(self._unseen)}, which '
                    f'are to be logged. They have {sorted(self._others)}.'
                )
        return {f'log/{name}': self._entry(name, info) for name in self._names}

    def _entry(self, name: str, info: Mapping[str, Any]) -> np.ndarray:
        if name not in info:
            return np.zeros(self._num, np.float32)
        value = to_host(info[name])
        if isinstance(value, dict) or value.dtype.kind not in 'biuf':
            raise SpaceError(f'The info {name!r} cannot be logged. Name numbers only.')
        if value.size != self._num or value.shape[:1] != (self._num,):
            raise SpaceError(
                f'The info {name!r} has the shape {value.shape}, and a number of each '
                f'of the {self._num} members is needed. Name numbers only.'
            )
        value = value.reshape(self._num).astype(np.float32)
        has = to_host(info.get(f'_{name}', True))
        return np.where(has, value, np.float32(0))
