"""Footprint: how much disk and memory a replay will take, said before it does."""

import dataclasses
import logging
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from .allocator import GIGABYTE
from .schema import OWN_COLUMNS

__all__ = ['Footprint', 'row_bytes_of']

log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Footprint:
    """Bytes that a full replay takes, and what there is."""

    needed: int
    cached: int  # of these, bytes that fit in memory now
    free: int | None  # on the disk; None for a replay in memory

    @classmethod
    def of(
        cls,
        row_bytes: int,
        capacity: int | None,
        max_bytes: int | None,
        folder: Path | None = None,
        stored: int = 0,
    ) -> 'Footprint':
        """Footprint of `capacity` rows in a folder that holds `stored` bytes now."""
        memory = psutil.virtual_memory().available
        free = shutil.disk_usage(folder).free + stored if folder is not None else None
        bounds = [row_bytes * capacity] if capacity else []
        bounds += [max_bytes] if max_bytes else []
        needed = min(bounds) if bounds else (free or memory)
        return cls(needed, min(needed, memory), free)

    def __str__(self) -> str:
        kind = 'memory' if self.free is None else 'disk'
        return (
            f'this run needs about {self.needed / GIGABYTE:.1f} GB of {kind} for '
            f'replay, {self.cached / GIGABYTE:.1f} GB of which fit in RAM'
        )

    def report(self) -> None:
        """Logs the estimate, as a warning if it cannot be met."""
        room = self.cached if self.free is None else self.free
        if self.needed <= room:
            log.info('%s.', self)
            return
        log.warning(
            '%s, but only %.1f GB are free. Lower replay.size or replay.max_gb, or set '
            'replay.dir to a larger disk.',
            self,
            room / GIGABYTE,
        )


def row_bytes_of(spaces: Mapping[str, Any]) -> int:
    """Bytes of one step with the given spaces (observations, actions, latents)."""
    own = sum(column.nbytes for column in OWN_COLUMNS)
    return own + sum(
        np.dtype(space.dtype).itemsize * int(np.prod(space.shape, dtype=np.int64))
        for key, space in spaces.items()
        if not key.startswith('log/')
    )
