"""Display in a notebook: one output below the cell, replaced by each new state."""

import contextlib
import io
import json
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console, RenderableType

from .logger import Entry

__all__ = ['NotebookDisplay', 'RecordFollower', 'in_notebook']

PERIOD = 1.0  # seconds between two states of a run that another process logs

HTML = '<pre style="line-height:1.25;font-family:monospace">{code}</pre>'


class NotebookDisplay:
    """Shows text graphics of rich; only to be made where IPython runs the cell."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._lock = threading.Lock()

    def show(self, content: RenderableType, width: int) -> None:
        """Shows the content in place of what was shown before."""
        from IPython.display import display

        data = _formats(content, width)
        with self._lock:
            if self._handle is None:
                self._handle = display(data, raw=True, display_id=True)
            else:
                self._handle.update(data, raw=True)


class RecordFollower:
    """Calls a view with what another process adds to a file of records.

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
            if entries := self._new_entries():
                self._view(entries)

    def _new_entries(self) -> list[Entry]:
        if not self._size():
            return []
        with self._path.open('rb') as file:
            file.seek(min(self._offset, self._size()))
            data = file.read()
            whole = data.rfind(b'\n') + 1
            self._offset = file.tell() - len(data) + whole
        entries: list[Entry] = []
        for line in data[:whole].splitlines():
            with contextlib.suppress(ValueError):  # half a line of a crash
                record = json.loads(line)
                entries += [
                    (record['step'], k, np.asarray(v)) for k, v in record.items()
                ]
        return entries

    def _size(self) -> int:
        return self._path.stat().st_size if self._path.exists() else 0


def in_notebook() -> bool:
    """Whether a notebook's kernel runs this process."""
    return Console().is_jupyter


def _formats(content: RenderableType, width: int) -> dict[str, str]:
    """The content by MIME type: for notebooks, and for those that show text only."""
    console = Console(
        file=io.StringIO(),
        record=True,
        width=width,
        highlight=False,
        force_jupyter=False,
        force_terminal=True,
        color_system='truecolor',
    )
    console.print(content)
    return {
        'text/html': console.export_html(
            code_format=HTML, inline_styles=True, clear=False
        ),
        'text/plain': console.export_text(),
    }
