"""Footprint: how much disk and memory a full replay takes, reported beforehand."""

import dataclasses
import logging
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from embodied.core.step_keys import without_log

from ..recovery.folder import list_segments
from ..storage.allocator import size_text
from ..storage.schema import OWN_COLUMNS

__all__ = ['Footprint', 'row_bytes_of']

LARGE = 0.5  # share of what is free that is worth a line
log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Footprint:
    """Bytes that a full replay takes, and what there is."""

    needed: int
    cached: int  # of these, bytes that fit in memory now
    free: int | None  # on the disk; None for a replay in memory
    latents: int = 0  # bytes of memory for latents, besides what is in files
    memory: int = 0  # bytes that are free now

    @classmethod
    def of(
        cls,
        row_bytes: int,
        capacity: int | None,
        max_bytes: int | None,
        folder: Path | None = None,
        latent_bytes: int = 0,
    ) -> 'Footprint':
        """Footprint of `capacity` rows, of which `folder` may hold some already.

        latent_bytes: of each row that are kept in memory although there is a folder.
        """
        memory = psutil.virtual_memory().available
        free = _room(folder) if folder is not None else None
        bounds = [row_bytes * capacity] if capacity else []
        bounds += [max_bytes] if max_bytes else []
        needed = min(bounds) if bounds else (free or memory)
        latents = needed // row_bytes * latent_bytes
        cached = min(needed, max(0, memory - latents))
        return cls(needed, cached, free, latents, memory)

    @property
    def fits(self) -> bool:
        room = self.memory if self.free is None else self.free
        return self.needed <= room and self.latents <= self.memory

    @property
    def is_large(self) -> bool:
        """Whether a full replay takes much of the room or memory that is free now."""
        room = self.memory if self.free is None else self.free
        return self.needed > LARGE * room or self.latents > LARGE * self.memory

    def __str__(self) -> str:
        kind = 'memory' if self.free is None else 'disk'
        text = (
            f'this run needs about {size_text(self.needed)} of {kind} for '
            f'replay, {size_text(self.cached)} of which fit in RAM'
        )
        if self.latents:
            text += f', and {size_text(self.latents)} of RAM for latents'
        if self.fits:
            return f'{text}.'
        free = f'{size_text(self.memory)} of RAM'
        if self.free is not None:
            free = f'{size_text(self.free)} of disk and {free}'
        return (
            f'{text}, but only {free} are free. Lower replay.size or replay.max_gb, '
            f'or set replay.dir to a larger disk.'
        )

    def report(self) -> None:
        """Logs the estimate, as a warning if it cannot be met."""
        log.log(logging.INFO if self.fits else logging.WARNING, '%s', self)


def _room(folder: Path) -> int:
    """Bytes that replay may take in a folder, which need not exist yet."""
    stored = sum(path.stat().st_size for path in list_segments(folder))
    there = next(path for path in (folder, *folder.parents) if path.exists())
    return shutil.disk_usage(there.resolve()).free + stored


def row_bytes_of(spaces: Mapping[str, Any]) -> int:
    """Bytes of one step with the given spaces (observations, actions, latents)."""
    own = sum(column.nbytes for column in OWN_COLUMNS)
    return own + sum(
        np.dtype(space.dtype).itemsize * int(np.prod(space.shape, dtype=np.int64))
        for space in without_log(spaces).values()
    )
