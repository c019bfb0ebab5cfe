"""Record follower: shows a process what another one adds to a file of records."""

import contextlib
import json
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .logger import Entry

__all__ = ['RecordFollower']

PERIOD = 1.0  # seconds between two looks at the file


class RecordFollower:
    """Calls a view, as a logger does its outputs, with each line that is added.

    Within the context a thread looks at the file, and once more at its end.
    """

    def __init__(self, path: Path, view: Callable[[Sequence[Entry]], None]) -> None:
        self._path = path
        self._view = view
        self._offset = self._size()  # What earlier sessions have written is not shown.
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, name='view', daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        self._thread.join()

    def _work(self) -> None:
        over = False
        while not over:
            over = self._over.wait(PERIOD)
            for entries in self._new_lines():
                self._view(entries)

    def _new_lines(self) -> Iterator[list[Entry]]:
        if not self._size():
            return
        with self._path.open('rb') as file:
            file.seek(min(self._offset, self._size()))
            data = file.read()
            whole = data.rfind(b'\n') + 1
            self._offset = file.tell() - len(data) + whole
        for line in data[:whole].splitlines():
            with contextlib.suppress(ValueError):  # half a line of a crash
                yield _entries(json.loads(line))

    def _size(self) -> int:
        return self._path.stat().st_size if self._path.exists() else 0


def _entries(record: dict[str, Any]) -> list[Entry]:
    """What was logged as one line of metrics.jsonl."""
    step = record.pop('step')
    record.pop('time', None)
    return [
        # Numbers that JSON cannot express are null.
        (step, k, v if isinstance(v, str) else np.asarray(math.nan if v is None else v))
        for k, v in record.items()
    ]
