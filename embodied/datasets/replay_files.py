"""Replay files: the episodes in the replay folder of a run, which may be going on."""

from collections.abc import Collection, Iterator
from typing import Any

import elements

from ..core.errors import ReplayError
from ..replay.tools.inspection import Inspection
from .source import Episode, Source

__all__ = ['ReplayFiles']


class ReplayFiles(Source):
    """Steps that were there when the folder was opened. Nothing is written to it."""

    def __init__(self, name: str, path: Any):
        self.name = name
        self._look = Inspection(path)
        self.steps = self._look.steps
        self.count = sum(1 for _ in self._look.episodes())
        self.spaces = {
            column.name: elements.Space(column.dtype, column.shape)
            for column in self._look.schema.columns.values()
        }
        if not self.steps:
            raise ReplayError(f'The replay in {self._look.path} is empty.')

    def episodes(self, names: Collection[str]) -> Iterator[Episode]:
        for worker, positions in self._look.episodes():
            serial = int(self._look.serials(positions[:1])[0])
            values = self._look.values(positions, latents=True, names=names)
            yield Episode(f'Stream {worker}, step {serial} of {self.name}', values)
