"""Logs of the roles: one file each, which does not grow without bounds."""

import shutil
from pathlib import Path

__all__ = ['Logs']

MAX_BYTES = 16 << 20  # of a file; as much again is kept of what came before


class Logs:
    """Files that roles, and the programs that they start, append to."""

    def __init__(self, folder: Path, max_bytes: int = MAX_BYTES):
        self.folder = folder
        self._max_bytes = max_bytes

    def path(self, name: str) -> Path:
        return self.folder / f'{name}.log'

    def rotate(self) -> None:
        """Moves the content of files that are too large to `NAME.log.1`.

        The files stay the same, since nobody can tell all who have them open to open
        another. What is written between the copy and the cut, microseconds, is lost.
        """
        for path in self.folder.glob('*.log'):
            if path.stat().st_size > self._max_bytes:
                shutil.copyfile(path, path.with_suffix('.log.1'))
                with path.open('ab') as file:
                    file.truncate(0)
