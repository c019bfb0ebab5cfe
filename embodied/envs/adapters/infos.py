"""Infos: numbers out of Gymnasium's `info` dicts as keys `log/...` of observations."""

from collections.abc import Mapping, Sequence
from typing import Any

import elements
import numpy as np

from ...core.base import Spaces
from ...core.errors import ConfigError, SpaceError

__all__ = ['Infos', 'parse_names']


class Infos:
    """Picks the entries called `names`; an info without one of them counts as 0.

    A name that no info of the first episode has is a ConfigError at its end.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.spaces: Spaces = {f'log/{x}': elements.Space(np.float32) for x in names}
        self._names = tuple(names)
        self._unseen = set(names)
        self._others: set[str] = set()

    def __call__(self, info: Mapping[str, Any], is_last: bool = False) -> Spaces:
        if self._unseen:
            self._unseen -= info.keys()
            self._others |= info.keys()
            if is_last and self._unseen:
                raise ConfigError(
                    f'No info of the first episode has {sorted(self._unseen)}, which '
                    f'are to be logged. They have {sorted(self._others)}.'
                )
        return {f'log/{x}': _number(x, info.get(x, 0.0)) for x in self._names}


def parse_names(text: str) -> tuple[str, ...]:
    """Names in a text like `is_success,distance`."""
    return tuple(name.strip() for name in text.split(',') if name.strip())


def _number(name: str, value: Any) -> np.float32:
    array = np.asarray(value)
    if array.dtype.kind not in 'biuf' or array.size != 1:
        raise SpaceError(
            f'The info {name!r} is a {type(value).__name__} of shape {array.shape} and '
            'cannot be logged. Name numbers only.'
        )
    return np.float32(array.item())
