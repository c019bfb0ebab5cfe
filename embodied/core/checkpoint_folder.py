"""Folders of checkpoints: writes one save, verifies it, finds the newest whole one.

    ckpt/
      latest                              name of the newest complete save
      000000012000-20260215T093000.123456/
        manifest.json                     step, versions, size and CRC-32 of each part
        agent.pkl  replay.pkl  ...        one pickle per part
      .tmp-...                            a write in progress, or what a crash left

A folder gets its final name after everything in it is on the disk, and `latest` is
replaced after that: whatever moment a crash comes, `latest` names a whole save. Disks
and careless copies damage what was whole; then the newest save that still is counts.
"""

import json
import os
import platform
import re
import shutil
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeAlias, TypeVar

from . import ownership, unpickling
from .errors import CheckpointError, TrustError
from .files import (
    TEMPORARY,
    read_sealed,
    seal,
    sync_path,
    why_unreadable,
    write_whole,
)
from .outside import LARGEST_OBJECT, read_plain

__all__ = [
    'BrokenSave',
    'Note',
    'Save',
    'is_clear',
    'list_saves',
    'new_name',
    'point_to',
    'remove_temporary',
    'use_newest',
    'write_save',
]

FORMAT = 1  # raised when code of before could not read what this code writes
LATEST = 'latest'
MANIFEST = 'manifest.json'
UNSEALED = frozenset({'format', 'step', 'parts', 'versions'})  # of version 0.1.0
STEP_DIGITS = 12  # that the name of a save begins with
NAME = re.compile(rf'\d{{{STEP_DIGITS},}}-\d{{8}}T\d{{6}}\.\d{{6}}')
AGENT = 'agent'  # folder of the saves that those of other roles depend on
PACKAGES = ('dreamer-parallel', 'numpy', 'jax')
BLOCK = 1 << 22  # bytes that are read at a time to compute a checksum

Note: TypeAlias = Callable[..., Any]  # (event, **details): adds an event
Dump: TypeAlias = Callable[[BinaryIO], Any]  # writes a part to a file
T = TypeVar('T')


class BrokenSave(CheckpointError):
    """A save is not whole; another one may be."""

    def __init__(self, path: Path, what: str):
        """path: the save, or the file that names it."""
        super().__init__(path, what)
        self.path = path
        self.what = what

    def __str__(self) -> str:
        kind = 'The file' if self.path.name == LATEST else 'The checkpoint'
        return f'{kind} {self.path} is broken: {self.what}.'


class Save(NamedTuple):
    """One save on the disk."""

    folder: Path
    manifest: dict[str, Any]

    @classmethod
    def read(cls, folder: Path) -> 'Save':
        """Raises BrokenSave if the manifest is damaged."""
        path = folder / MANIFEST
        try:
            if not folder.is_dir():
                raise ValueError('the folder is missing')
            manifest = _read_manifest(path)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise BrokenSave(folder, f'{MANIFEST} cannot be read: {error}') from error
        if manifest['format'] != FORMAT:
            raise CheckpointError(
                f'The checkpoint {folder} has format {manifest["format"]}, this '
                f'version reads format {FORMAT}. It was written with '
                f'{manifest.get("versions")}: use those versions, or start in a new '
                'folder.'
            )
        return cls(folder, manifest)

    @property
    def step(self) -> int:
        return self.manifest['step']

    @property
    def parts(self) -> list[str]:
        return sorted(self.manifest['parts'])

    def verify(self, names: Iterable[str]) -> None:
        """Raises BrokenSave if a part is not as it was written."""
        for name in names:
            if name not in self.manifest['parts']:
                raise CheckpointError(
                    f"The checkpoint {self.folder} has no part '{name}', only "
                    f'{self.parts}. It belongs to another kind of run: choose another '
                    'folder.'
                )
            self._verify_part(name)

    def is_own(self, name: str) -> bool:
        """Whether this user has written a part, where it is."""
        path, prints = self._path(name), self.manifest.get('fingerprints')
        return (
            isinstance(prints, dict)
            and ownership.is_unchanged(path, prints.get(name))
            and ownership.is_private(self.folder, self.folder / MANIFEST, path)
        )

    def load(self, name: str, trust: bool) -> Any:
        """What a part saved; TrustError if that could run code and is not trusted."""
        path = self._path(name)
        try:
            with path.open('rb') as file:
                return unpickling.load(file, trust)
        except unpickling.UntrustedGlobal as error:
            raise TrustError(
                f'{path} {error}. Loading it would run code, and this user has not '
                'written that file here: it was copied, unpacked, or belongs to '
                'another user. Give --trust (in Python trust=True) if you trust its '
                'author.'
            ) from error
        except Exception as error:  # bad bytes can raise nearly anything
            reason = why_unreadable(error)
            if 'crc32' not in self.manifest:
                raise BrokenSave(self.folder, f'{path.name}: {reason}') from error
            raise CheckpointError(
                f'{path} is as it was written but cannot be loaded: {reason}. It was '
                f'written with {self.manifest["versions"]}: use those versions.'
            ) from error

    def _path(self, name: str) -> Path:
        return self.folder / f'{name}.pkl'

    def _verify_part(self, name: str) -> None:
        path, size = self._path(name), self.manifest['parts'][name]
        found = path.stat().st_size if path.is_file() else None
        if found != size:
            what = 'is missing' if found is None else f'has {found} bytes'
            text = f'{path.name} {what}, expected {size} bytes by its {MANIFEST}'
            raise BrokenSave(self.folder, text)
        checksums = self.manifest.get('crc32')  # not in saves of version 0.1.0
        if checksums is None:
            return
        try:
            found = _checksum(path)
        except OSError as error:
            raise BrokenSave(self.folder, f'{path.name}: {error}') from error
        if found != checksums.get(name):
            text = f'{path.name} does not match its checksum in {MANIFEST}'
            raise BrokenSave(self.folder, text)


def use_newest(
    directory: Path,
    names: Iterable[str] | None,
    use: Callable[[Save], T],
    note: Note = lambda event, **details: None,
    prefer: str | None = None,
) -> tuple[T, Save]:
    """What `use` returns for the newest whole save, and that save.

    The one that `latest` names comes first, `prefer` before it. A save that is not
    whole, or that `use` raises BrokenSave for, is reported by a message and an event.
    Raises CheckpointError if there is no whole one. names: parts that are needed, all
    by default.
    """
    broken: list[BrokenSave] = []
    for folder in _candidates(directory, prefer, broken):
        try:
            save = Save.read(folder)
            save.verify(save.parts if names is None else names)
            result = use(save)
        except BrokenSave as error:
            broken.append(error)
            continue
        for damage in broken:
            _report(damage, save, note)
        return result, save
    raise _none_whole(directory, broken)


def list_saves(directory: Path) -> list[Path]:
    """Folders of saves, whole or not, the newest first."""
    if not directory.is_dir():
        return []
    found = (x for x in directory.iterdir() if NAME.fullmatch(x.name) and x.is_dir())
    # By time: a run that went back has older saves with larger steps.
    return sorted(found, key=_age, reverse=True)


def is_clear(directory: Path) -> bool:
    """Whether `latest` names one of the saves, or there are none."""
    names = [path.name for path in list_saves(directory)]
    return not names or _pointed(directory) in names


def point_to(directory: Path, version: str) -> bool:
    """Makes a save the one that is loaded next; False if it is not there."""
    if not (directory / version / MANIFEST).exists():
        return False
    if _pointed(directory) != version:
        write_whole(directory / LATEST, version)
    return True


def new_name(step: int) -> str:
    stamp = datetime.now(UTC).strftime('%Y%m%dT%H%M%S.%f')
    return f'{step:0{STEP_DIGITS}}-{stamp}'


def write_save(
    directory: Path, name: str, step: int, dumps: Mapping[str, Dump]
) -> None:
    """Writes all parts and then lets `latest` name them; nothing stays if it fails."""
    directory.mkdir(parents=True, exist_ok=True)
    remove_temporary(directory)
    temporary = directory / f'{TEMPORARY}{name}'
    try:
        temporary.mkdir()
        written = {k: _write_part(temporary / f'{k}.pkl', v) for k, v in dumps.items()}
        manifest = {
            'format': FORMAT,
            'step': step,
            'parts': {part: size for part, (size, _) in written.items()},
            'versions': _versions(),
            'crc32': {part: checksum for part, (_, checksum) in written.items()},
            'fingerprints': {
                part: ownership.fingerprint(temporary / f'{part}.pkl')
                for part in written
            },
        }
        write_whole(temporary / MANIFEST, json.dumps(seal(manifest), indent=2))
        temporary.rename(directory / name)
    except BaseException:
        # A full disk has room again for what else is to be written at the end.
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    sync_path(directory)
    write_whole(directory / LATEST, name)


def remove_temporary(directory: Path) -> None:
    for path in directory.glob(f'{TEMPORARY}*/'):
        shutil.rmtree(path)


class _Checksummed:
    """A file to write to that keeps the CRC-32 of what it was given."""

    def __init__(self, file: BinaryIO):
        self._file = file
        self.checksum = 0

    def write(self, data: Any) -> int:
        self.checksum = zlib.crc32(data, self.checksum)
        return self._file.write(data)


def _write_part(path: Path, dump: Dump) -> tuple[int, int]:
    """Writes and waits until the disk has it; size in bytes and CRC-32."""
    with path.open('wb') as file:
        counted: Any = _Checksummed(file)
        dump(counted)
        file.flush()
        os.fsync(file.fileno())
        return file.tell(), counted.checksum


def _checksum(path: Path) -> int:
    checksum, block = 0, bytearray(BLOCK)
    with path.open('rb', buffering=0) as file:
        while size := file.readinto(block):
            checksum = zlib.crc32(memoryview(block)[:size], checksum)
    return checksum


def _read_manifest(path: Path) -> dict[str, Any]:
    manifest = json.loads(read_plain(path, LARGEST_OBJECT))
    if manifest['format'] == FORMAT:
        manifest = read_sealed(path, UNSEALED)
    elif 'checksum' in manifest:
        # Bit rot, or really another format, which is sealed as well.
        read_sealed(path, UNSEALED)
    if not isinstance(manifest['step'], int):
        raise TypeError('the step is no number')
    if not isinstance(manifest['parts'], dict):
        raise TypeError('the parts have no sizes')
    return manifest


def _candidates(
    directory: Path, prefer: str | None, broken: list[BrokenSave]
) -> Iterator[Path]:
    """Saves in the order in which they are tried; adds to `broken` what is missing."""
    found, pointed = list_saves(directory), _pointed(directory)
    if prefer and directory / prefer not in found:
        broken.append(BrokenSave(directory / prefer, 'the folder is missing'))
    if pointed is None:
        broken.append(BrokenSave(directory / LATEST, 'it is missing'))
    elif directory / pointed not in found and pointed != prefer:
        named = f'it names {directory / pointed}, which is not there'
        broken.append(BrokenSave(directory / LATEST, named))
    named_first = [directory / name for name in (prefer, pointed) if name]
    yield from dict.fromkeys(x for x in [*named_first, *found] if x in found)


def _pointed(directory: Path) -> str | None:
    """What `latest` says, which may be anything; None without it."""
    try:
        data = read_plain(directory / LATEST, LARGEST_OBJECT)
        return data.decode(errors='replace').strip()
    except OSError:
        return None


def _report(error: BrokenSave, used: Save, note: Note) -> None:
    print(f'{error} The save {used.folder.name} is used instead.', file=sys.stderr)
    details = {'file': str(error.path), 'reason': error.what}
    note('damaged', **details, used=used.folder.name)


def _none_whole(directory: Path, broken: list[BrokenSave]) -> CheckpointError:
    # Without the agent, what the other roles have saved is of no use.
    whole = directory.parent if directory.name == AGENT else directory
    there = len(list_saves(directory))
    return CheckpointError(
        f'{" ".join(map(str, broken))} There is no whole save in {directory}, which '
        f'holds {there} in all. Restore it from a copy, or remove {whole} to start '
        'without it.'
    )


def _age(path: Path) -> str:
    return path.name.partition('-')[2]


def _versions() -> dict[str, str]:
    found = {'python': platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue  # run from a source tree, or without an agent that needs it
    return found
