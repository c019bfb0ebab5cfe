"""Carrying the state of bench/scores.py between machines that keep nothing.

The files are parts of one compressed archive. What does not fit stays behind, in the
order of its worth: curves come first, then checkpoints, then replay, then compiled
programs. A run without its replay fills it again, and one without its checkpoint
begins again.
"""

import io
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from .arms import Run

__all__ = ['pack', 'unpack']

PART_BYTES = 15_000_000
REPLAY = 'replay'
LEFT_BEHIND = ('eval_replay', 'logs', 'lock')  # of a run's folder


def pack(runs: Sequence[Run], state: Path, target: Path, limit: float) -> None:
    """Writes what fits into `limit` bytes as files in `target`."""
    content = io.BytesIO()

    def add(name: str, paths: Sequence[Path]) -> bool:
        # Archives one after the other are one archive to a reader that skips zeros.
        part = _compressed(paths, state)
        fits = content.tell() + len(part) <= limit
        content.write(part if fits else b'')
        if not fits:
            print(f'Left behind: {name}, {len(part) / 1e6:.1f} MB')
        return fits

    add('curves', [*(state / 'curves').glob('*.csv'), *state.glob('*.json')])
    found = ((run, _kept(state, run, replay=False)) for run in runs)
    folders = sorted((x for x in found if x[1]), key=lambda x: _size(x[1]))
    packed = [run for run, paths in folders if add(run.name, paths)]
    for run in packed:
        add(f'{run.name}/replay', _kept(state, run, replay=True))
    programs = [path for path in sorted((state / 'cache').glob('*')) if path.is_file()]
    add('compiled programs', programs)
    _write_parts(content.getbuffer(), target)
    print(f'Packed {content.tell() / 1e6:.1f} MB into {target}.')


def unpack(source: Path, state: Path) -> None:
    """Restores what `pack` wrote."""
    parts = sorted(source.glob('state-*.part'))
    if not parts:
        raise SystemExit(f'There are no state-*.part files in {source}.')
    state.mkdir(parents=True, exist_ok=True)
    content = io.BytesIO(b''.join(part.read_bytes() for part in parts))
    with tarfile.open(fileobj=content, mode='r:gz', ignore_zeros=True) as archive:
        archive.extractall(state, filter='data')


def _compressed(paths: Iterable[Path], state: Path) -> bytes:
    """An archive of its own; the empty ends of segments cost next to nothing."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode='w:gz', compresslevel=3) as archive:
        for path in paths:
            archive.add(path, path.relative_to(state))
    return content.getvalue()


def _write_parts(data: memoryview, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for old in target.glob('state-*.part'):
        old.unlink()
    for number, start in enumerate(range(0, len(data), PART_BYTES)):
        part = target / f'state-{number:02}.part'
        part.write_bytes(data[start : start + PART_BYTES])


def _kept(state: Path, run: Run, replay: bool) -> list[Path]:
    """Files of a run: those of its replay, or all others that are worth carrying."""
    return [
        path
        for path, top in _files(state / 'runs' / run.name)
        if (top == REPLAY) == replay and top not in LEFT_BEHIND and path.name != 'lock'
    ]


def _files(folder: Path) -> Iterator[tuple[Path, str]]:
    """Each file with the first part of its path inside the folder."""
    for path in sorted(folder.rglob('*')):
        if path.is_file():
            yield path, path.relative_to(folder).parts[0]


def _size(paths: Iterable[Path]) -> int:
    return sum(path.stat().st_size for path in paths)
