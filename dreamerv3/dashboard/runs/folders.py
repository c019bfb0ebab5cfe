"""Folders of runs below those that were given: found without following links."""

import contextlib
import hashlib
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from embodied.core.errors import ConfigError

from .run_files import printable

__all__ = ['Run', 'check_roots', 'find_runs', 'pictures', 'plain_files']

# A folder with one of these holds a run.
MARKS = frozenset({'config.yaml', 'metrics.jsonl', 'scores.jsonl', 'status.json'})
DEEPEST = 5  # levels below a given folder
MOST_RUNS = 2000
PICTURES = {
    '.gif': 'image/gif',
    '.png': 'image/png',
    '.mp4': 'video/mp4',
    '.webm': 'video/webm',
}


class Run(NamedTuple):
    """A run's folder; its id says nothing of the path and is used in requests."""

    id: str
    name: str
    path: Path


def check_roots(folders: Sequence[str]) -> list[Path]:
    """The folders that were asked for, as absolute paths."""
    roots = [Path(folder).expanduser().resolve() for folder in folders]
    for given, root in zip(folders, roots, strict=True):
        if not root.is_dir():
            raise ConfigError(
                f"There is no folder '{given}'. Give the folder of a run or one that "
                'holds several, for example: dreamer watch ~/logdir'
            )
    return roots


def find_runs(roots: Sequence[Path]) -> list[Run]:
    """All runs, named by their path below the given folder."""
    runs: dict[Path, Run] = {}
    for root in roots:
        for path in _walk(root, DEEPEST):
            name = root.name if path == root else str(path.relative_to(root))
            if path != root and len(roots) > 1:
                name = f'{root.name}/{name}'
            key = hashlib.sha256(os.fsencode(path)).hexdigest()[:12]
            runs.setdefault(path, Run(key, printable(name), path))
            if len(runs) >= MOST_RUNS:
                return list(runs.values())
    return list(runs.values())


def pictures(run: Run) -> list[dict[str, str | int | float]]:
    """Videos and images of a run, newest first."""
    found: list[dict[str, str | int | float]] = []
    for name, info in plain_files(run.path / 'videos'):
        path = Path(name)
        if name.startswith('.') or path.suffix not in PICTURES:
            continue
        label, _, digits = path.stem.rpartition('-')
        step = int(digits) if digits.isascii() and digits.isdigit() else 0
        found.append(
            {
                'file': printable(name),
                'label': printable(label or path.stem),
                'kind': PICTURES[path.suffix],
                'step': min(step, 2**53),
                'time': info.st_mtime,
                'bytes': info.st_size,
            }
        )
    return sorted(found, key=lambda item: (-float(item['step']), str(item['file'])))


def plain_files(folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Names and facts of the files in a folder, without links and the like."""
    for entry in _entries(folder):
        # A run deletes old videos, and renames logs, while they are listed; a folder
        # that may be listed need not be ours to enter.
        with contextlib.suppress(OSError):
            info = entry.stat(follow_symlinks=False)
            if stat.S_ISREG(info.st_mode):
                yield entry.name, info


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """What is in a folder; nothing if it is a link, missing or not ours to read."""
    if folder.is_symlink():
        return []
    try:
        with os.scandir(folder) as found:
            return list(found)
    except OSError:
        return []


def _walk(folder: Path, depth: int) -> Iterator[Path]:
    found = _entries(folder)
    if any(entry.name in MARKS for entry in found):
        yield folder  # what is inside belongs to the run
        return
    if depth:
        for entry in sorted(found, key=lambda entry: entry.name):
            if entry.is_dir(follow_symlinks=False) and not entry.name.startswith('.'):
                yield from _walk(folder / entry.name, depth - 1)
