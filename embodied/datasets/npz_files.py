"""NPZ files: a folder with one file per episode, as `dreamer replay export` writes."""

import contextlib
import zipfile
import zlib
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import elements
import numpy as np

from ..core.base import Spaces
from ..core.errors import ReplayError
from .source import Episode, Source

__all__ = ['SUFFIX', 'NpzFiles']

SUFFIX = '.npz'
MEMBER = '.npy'  # of each array in the file

# What files that are cut off, changed or of another kind make NumPy raise.
BROKEN = zipfile.BadZipFile, zlib.error, ValueError, EOFError

Shapes = dict[str, tuple[np.dtype, tuple[int, ...]]]


class NpzFiles(Source):
    """Arrays [n, ...] by key in each file, in the order of the names."""

    def __init__(self, name: str, paths: Sequence[Path]):
        self.name = name
        self._paths = sorted(paths)
        self.count = len(self._paths)
        self.steps = 0
        self.spaces = {}
        for path in self._paths:
            shapes = _shapes_of(path)
            self.steps += min((x[0] for _, x in shapes.values() if x), default=0)
            spaces = {k: elements.Space(d, x[1:]) for k, (d, x) in shapes.items()}
            self.spaces = self.spaces or spaces
            self._compare(path, spaces)

    def episodes(self, names: Collection[str]) -> Iterator[Episode]:
        for path in self._paths:
            with _reading(path), np.load(path, allow_pickle=False) as file:
                values = {key: file[key] for key in names if key in file}
            yield Episode(str(path), values)

    def _compare(self, path: Path, spaces: Spaces) -> None:
        """Refuses a file with other arrays than the first."""
        form = lambda spaces, key: (
            f'{spaces[key].dtype}{list(spaces[key].shape)}' if key in spaces else 'none'
        )
        different = [
            f'  {key}: {form(self.spaces, key)} and {form(spaces, key)}'
            for key in sorted(self.spaces.keys() | spaces.keys())
            if form(self.spaces, key) != form(spaces, key)
        ]
        if different:
            lines = '\n'.join(different)
            raise ReplayError(
                f'The files {self._paths[0]} and {path} hold different arrays:\n'
                f'{lines}\nAll episodes of one folder need the same keys, dtypes and '
                'shapes of a step. Give folders of different kinds apart.'
            )


def _shapes_of(path: Path) -> Shapes:
    """Dtype and shape of each array in a file, from the headers alone."""
    shapes: Shapes = {}
    with _reading(path), zipfile.ZipFile(path) as file:
        for name in file.namelist():
            with file.open(name) as member:
                shapes[name.removesuffix(MEMBER)] = _header(member)
    odd = sorted(key for key, (dtype, _) in shapes.items() if dtype.kind not in 'biuf')
    if odd:
        raise ReplayError(
            f'{path} holds {", ".join(odd)}, which are neither numbers nor booleans. '
            'Convert them or leave them out.'
        )
    return shapes


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except BROKEN as error:
        raise ReplayError(
            f'{path} is no whole file of NumPy arrays: {error}. Write it again, or '
            'move it away.'
        ) from None
    except OSError as error:
        raise ReplayError(f'{path} cannot be read: {error.strerror}.') from error


def _header(member: Any) -> tuple[np.dtype, tuple[int, ...]]:
    version = np.lib.format.read_magic(member)
    read = np.lib.format.read_array_header_2_0
    if version == (1, 0):
        read = np.lib.format.read_array_header_1_0
    shape, _, dtype = read(member)
    return dtype, shape
