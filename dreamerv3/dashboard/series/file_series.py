"""File series: the metrics of one file of a run, read as far as it is written."""

import os
from collections.abc import Collection
from pathlib import Path
from typing import BinaryIO

import numpy as np

from ..runs.run_files import open_plain
from .buckets import BUCKET, EMPTY, MOST_BUCKETS, Series
from .clock import SECONDS, Clock
from .records import FILES, MOST_NAMES, Columns, read_part, sample_lines

__all__ = ['FileSeries']

HEAD = 4096  # bytes at the start that tell one file from another of the same name


class FileSeries:
    """Decimated series of one file.

    limit: most buckets of a series. only: names of the metrics to keep, None for all.
    """

    def __init__(
        self,
        path: Path,
        limit: float = MOST_BUCKETS,
        only: Collection[str] | None = None,
    ):
        self.path = path
        self._limit = limit
        self._only = only
        self.series: dict[str, Series] = {}
        self.clock = Clock()
        self.start: float | None = None  # time of the first record
        self._head = b''
        self._offset = 0
        self._size = 0
        self._partial = False  # the line behind the offset is still being written

    @property
    def behind(self) -> bool:
        """Whether the file had more when it was last looked at."""
        return self._offset < self._size and not self._partial

    @property
    def share(self) -> float:
        """How much of the file is read, from 0 to 1."""
        return self._offset / self._size if self.behind else 1.0

    @property
    def bytes(self) -> int:
        """Memory of all series."""
        return BUCKET.itemsize * sum(len(one.buckets) for one in self.series.values())

    def look(self) -> None:
        """Notes how long the file is now; one that was replaced is read again."""
        with open_plain(self.path) as file:
            size = os.fstat(file.fileno()).st_size if file else 0
            if not file or size < self._offset or self._replaced(file):
                self._forget()
            self._partial = self._partial and size == self._size
            self._size = size

    def advance(self) -> None:
        """Reads the next part, if there is one."""
        with open_plain(self.path) as file:
            if not file:
                self._forget()
                return
            if not self._offset:
                self._head = os.pread(file.fileno(), HEAD, 0)
            parse = FILES[self.path.name]
            offset, columns = read_part(file, self._offset, parse)
        self._partial = offset == self._offset
        self._offset = offset
        self._head = self._head[:offset]  # what follows may still be written
        self._take(columns)

    def read(self) -> 'FileSeries':
        """Reads all that the file has now."""
        self.look()
        while self.behind:
            self.advance()
        return self

    def sample(self, count: int) -> dict[str, np.ndarray]:
        """Points of about `count` lines that are spread over what is not read yet."""
        with open_plain(self.path) as file:
            if not file:
                return {}
            columns = sample_lines(file, self._offset, count, FILES[self.path.name])
        return dict(columns.series(self._only))

    def shrink(self, limit: float) -> None:
        """Makes all series coarser, also those that are yet to be read."""
        self._limit = limit
        none = np.empty(0, BUCKET)
        self.series = {k: v.append(none, limit) for k, v in self.series.items()}

    def _forget(self) -> None:
        self.series, self.clock, self.start = {}, Clock(), None
        self._head, self._offset, self._size, self._partial = b'', 0, 0, False

    def _replaced(self, file: BinaryIO) -> bool:
        return os.pread(file.fileno(), len(self._head), 0) != self._head

    def _take(self, columns: Columns) -> None:
        if self.start is None:
            self.start = columns.start
        for name, points in columns.series(self._only):
            if name not in self.series and len(self.series) >= MOST_NAMES:
                continue
            known = self.series.get(name, EMPTY)
            self.series[name] = known.append(points, self._limit)
            if name == SECONDS:
                self.clock.learn(points['time'], points['mean'])
