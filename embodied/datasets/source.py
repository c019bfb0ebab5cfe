"""Source: what all formats of recorded episodes offer."""

from collections.abc import Collection, Iterator
from typing import NamedTuple

from ..core.base import Batch, Spaces

__all__ = ['Episode', 'Source']


class Episode(NamedTuple):
    """One recorded episode, as its source holds it.

    name: as messages call it. values: arrays [n, ...] by key. Row t holds what was
    observed at step t, with the reward received on entering it, and the action that was
    chosen then.
    """

    name: str
    values: Batch


class Source:
    """Recorded episodes of one place, read only.

    name: as messages call it. steps, count: of rows and episodes. spaces: dtype and
    shape of each key, with bounds where the source knows them. actions: the keys that
    are actions; None if the source does not say. is_raw: whether observations are those
    of the bare environment, whose images are to be resized.
    """

    name: str
    steps: int
    count: int
    spaces: Spaces
    actions: tuple[str, ...] | None = None
    is_raw = False

    def episodes(self, names: Collection[str]) -> Iterator[Episode]:
        """All episodes in order, with those of the named keys that there are."""
        raise NotImplementedError
