"""Replay files: the episodes that a run has recorded, which may be going on."""

import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import elements
import numpy as np

from ..core.checkpoint import RUN_SUBFOLDER, Checkpoint, load_part
from ..core.errors import ReplayError
from ..replay.recovery import snapshot
from ..replay.recovery.folder import find_folder
from ..replay.sampling.index import NONE
from ..replay.storage.allocator import Allocator
from ..replay.storage.store import Store
from ..replay.tools.inspection import Inspection, Rows
from .source import Episode, Source

__all__ = ['ReplayFiles', 'open_rows']

PART = 'replay'  # of the checkpoints of runs in one process


class ReplayFiles(Source):
    """Steps that were there when the folder was opened. Nothing is written to it.

    path: a replay folder, or the folder of a run that has one or that keeps its replay
    in its checkpoints. trust: loads checkpoints of others whatever is in them.
    """

    def __init__(self, name: str, path: Path, trust: bool = False):
        self.name = name
        self._rows = open_rows(path, trust)
        self.steps = self._rows.steps
        self.count = sum(1 for _ in self._rows.episodes())
        self.spaces = {
            column.name: elements.Space(column.dtype, column.shape)
            for column in self._rows.schema.columns.values()
        }
        if not self.steps:
            raise ReplayError(f'The replay in {path} is empty.')

    def episodes(self, names: Collection[str]) -> Iterator[Episode]:
        for worker, positions in self._rows.episodes():
            serial = int(self._rows.serials(positions[:1])[0])
            values = self._rows.values(positions, latents=True, names=names)
            yield Episode(f'Stream {worker}, step {serial} of {self.name}', values)


def open_rows(path: Path, trust: bool = False) -> Rows:
    """The rows that a run has recorded, in its replay folder or its checkpoint."""
    try:
        find_folder(path)
    except ReplayError:
        if not Checkpoint(path / RUN_SUBFOLDER).exists():
            raise
    else:
        return Inspection(path)
    # A replay that keeps its steps elsewhere saves what names no content.
    saved = load_part(path, PART, trust)
    content = (saved.get('content') or {}).get('content')
    if content is None:
        raise ReplayError(
            f'The replay of the run in {path} is neither there nor in its checkpoint. '
            'If replay.dir was set, name that folder.'
        )
    return _saved_rows(content)


def _saved_rows(content: dict[str, Any]) -> Rows:
    """The rows of a replay in memory, as its `save` keeps them."""
    chunks = content['chunks']
    there = np.isin(chunks['prev'], chunks['ordinal'])
    chunks = {**chunks, 'prev': np.where(there, chunks['prev'], NONE)}
    store = Store(1, None, Allocator(os.urandom(8), content['chunksize'], None, None))
    snapshot.restore(store, {**content, 'chunks': chunks})
    return Rows(store)
