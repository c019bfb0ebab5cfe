"""CSV output: one row per value, so that metrics may come and go.

metrics.csv   step,time,name,value
"""

import csv
import io
import os
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from .logger import Entry, scalars

__all__ = ['CsvOutput']

COLUMNS = ('step', 'time', 'name', 'value')
LONGEST_ROW = 1 << 16  # bytes


class CsvOutput:
    """Logger output for spreadsheets and data frames; scalars only."""

    def __init__(self, logdir: str | os.PathLike):
        path = Path(logdir) / 'metrics.csv'
        path.parent.mkdir(parents=True, exist_ok=True)
        self._fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        self._cut_half_a_row()
        if not os.fstat(self._fd).st_size:
            self._append([COLUMNS])

    def __call__(self, entries: Sequence[Entry]) -> None:
        step, now = max(step for step, _, _ in entries), round(time.time(), 3)
        self._append((step, now, k, v) for k, v in scalars(entries).items())

    def close(self) -> None:
        os.close(self._fd)

    def _cut_half_a_row(self) -> None:
        """What a crash left of the last row would spoil the next one."""
        size = os.fstat(self._fd).st_size
        start = max(0, size - LONGEST_ROW)
        tail = os.pread(self._fd, size - start, start)
        os.ftruncate(self._fd, start + tail.rfind(b'\n') + 1)

    def _append(self, rows: Iterable[Sequence[Any]]) -> None:
        text = io.StringIO()
        csv.writer(text, lineterminator='\n').writerows(rows)
        os.write(self._fd, text.getvalue().encode())
