"""Display in a notebook: one output below the cell, replaced by each new state."""

import io
import threading
from typing import Any

from rich.console import Console, RenderableType

__all__ = ['NotebookDisplay', 'in_notebook']

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
