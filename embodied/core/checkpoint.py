"""Checkpoints: owns the folder of a run's saves and the thread that writes them.

    ckpt/
      latest                              name of the newest complete checkpoint
      000000012000-20260215T093000.123456/
        manifest.json                     step, versions, size of each part
        agent.pkl  replay.pkl  ...        one pickle per registered part
      .tmp-...                            a write in progress, or what a crash left

A folder gets its final name after everything in it is on the disk, and `latest` is
replaced after that: whatever moment a crash comes, `latest` names a whole checkpoint.
Pickle runs code while it loads. So a part that is not this user's own, as it was
written (`ownership.py`), may hold arrays and plain values only, unless it is trusted.
"""

import json
import os
import pickle
import platform
import shutil
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from . import ownership, unpickling
from .errors import CheckpointError, TrustError
from .outside import read_plain

__all__ = [
    'RUN_SUBFOLDER',
    'Checkpoint',
    'Saveable',
    'is_own',
    'load_part',
    'load_step',
    'point_to',
    'write_whole',
]

FORMAT = 1  # raised when code of before could not read what this code writes
PROTOCOL = 5  # of pickle: the first that writes arrays without a detour
LATEST = 'latest'
MANIFEST = 'manifest.json'
TEMPORARY = '.tmp-'
RUN_SUBFOLDER = 'ckpt'  # where runs keep their checkpoints
AGENT = 'agent'  # in it, if every role of the run has checkpoints of its own
LARGEST_MANIFEST = 1 << 20  # bytes
STEP_DIGITS = 12  # that the name of a checkpoint begins with
PACKAGES = ('dreamer-parallel', 'numpy', 'jax')


class Saveable(Protocol):
    """`load(save())` restores; both may be called at any time between two steps."""

    def save(self) -> Any: ...

    def load(self, data: Any) -> None: ...


class Checkpoint:
    """Saves and loads a set of named parts as one consistent whole."""

    def __init__(
        self,
        directory: str | os.PathLike,
        keep: int = 1,
        pinned: Callable[[], str | None] = lambda: None,
        trust: bool = False,
    ):
        """keep: how many of the newest saves stay; `pinned` names one that stays, too,
        as long as something else refers to it. trust: loads saves of others as well,
        whatever is in them."""
        assert keep >= 1, keep
        self.directory = Path(directory).expanduser()
        self.keep = keep
        self.version = ''  # name of the newest save of this object, once it is whole
        self._pinned = pinned
        self._trust = trust
        self._parts: dict[str, Saveable] = {}
        self._frozen: set[str] = set()
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None

    def add(self, name: str, part: Saveable, frozen: bool = False) -> None:
        """Registers a part. `frozen` promises that what its `save()` returned is
        never changed afterwards, so it is written without being copied first."""
        assert name.isidentifier() and name not in self._parts, name
        self._parts[name] = part
        if frozen:
            self._frozen.add(name)

    @property
    def busy(self) -> bool:
        """Whether the last save is still being written."""
        return self._thread is not None and self._thread.is_alive()

    def save(
        self, step: int = 0, then: Callable[[str], Any] = lambda version: None
    ) -> None:
        """Takes a snapshot of all parts now and writes it in the background; `then`
        is called there with the name of the save when it is whole."""
        self.wait()
        dumps = {name: self._snapshot(name) for name in self._parts}
        self._thread = threading.Thread(
            target=self._write,
            args=(int(step), dumps, then),
            name='checkpoint',
            daemon=True,
        )
        self._thread.start()

    def wait(self) -> None:
        """Returns when the last save is on the disk; raises if it could not be."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        error, self._error = self._error, None
        if error is not None:
            raise CheckpointError(
                f'Could not write a checkpoint to {self.directory}: '
                f'{type(error).__name__}: {error}. The one before it is still whole. '
                'Make room or mend the folder, then start the run again.'
            ) from error

    def exists(self) -> bool:
        return (self.directory / LATEST).exists()

    def load(self) -> int:
        """Restores every registered part from the newest save; returns its step."""
        self.wait()
        folder = _find(self.directory)
        manifest = _manifest(folder)
        for name in self._parts:
            _check_part(folder, manifest, name)
        for name, part in self._parts.items():
            trust = self._trust or _is_own(folder, manifest, name)
            data = _unpickle(folder / f'{name}.pkl', trust)
            with unpickling.trusting(trust):
                part.load(data)
        return manifest['step']

    def load_or_save(self, step: int = 0) -> int:
        """Restores the newest save or, in a fresh folder, makes the first."""
        if self.exists():
            return self.load()
        self.save(step)
        return step

    def _snapshot(self, name: str) -> Callable[[BinaryIO], Any]:
        """Function that writes the part as it is now to a file."""
        data = self._parts[name].save()
        if name in self._frozen:
            return lambda file: pickle.dump(data, file, PROTOCOL)
        # The copy is the pickle: one pass over the data, whatever it consists of.
        buffer = pickle.dumps(data, PROTOCOL)
        return lambda file: file.write(buffer)

    def _write(
        self,
        step: int,
        dumps: dict[str, Callable[[BinaryIO], Any]],
        then: Callable[[str], Any],
    ) -> None:
        try:
            stamp = datetime.now(UTC).strftime('%Y%m%dT%H%M%S.%f')
            version = f'{step:0{STEP_DIGITS}}-{stamp}'
            self._write_folder(version, step, dumps)
            self.version = version
            then(version)
            self._prune()
        except Exception as error:  # noqa: BLE001, raised by the next save() or wait()
            self._error = error

    def _write_folder(
        self, name: str, step: int, dumps: dict[str, Callable[[BinaryIO], Any]]
    ) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        self._remove_temporary()
        temporary = self.directory / f'{TEMPORARY}{name}'
        temporary.mkdir()
        sizes = {
            part: _write_file(temporary / f'{part}.pkl', dump)
            for part, dump in dumps.items()
        }
        manifest = {
            'format': FORMAT,
            'step': step,
            'parts': sizes,
            'seals': {x: ownership.seal(temporary / f'{x}.pkl') for x in sizes},
            'versions': _versions(),
        }
        text = json.dumps(manifest, indent=2).encode()
        _write_file(temporary / MANIFEST, lambda file: file.write(text))
        _sync_folder(temporary)
        temporary.rename(self.directory / name)
        _sync_folder(self.directory)
        write_whole(self.directory / LATEST, name)

    def _prune(self) -> None:
        """Removes all but the last `keep` checkpoints and the pinned one."""
        stay = (self.version, self._pinned())
        older = sorted(
            (
                path
                for path in self.directory.iterdir()
                if path.is_dir()
                and path.name[:STEP_DIGITS].isdigit()
                and path.name not in stay
            ),
            # By time: a run that went back has older saves with larger steps.
            key=lambda path: path.name[STEP_DIGITS:],
        )
        for path in older[: max(0, len(older) - (self.keep - 1))]:
            # Never half a checkpoint under a final name, even while it is deleted.
            path.rename(path.with_name(f'{TEMPORARY}{path.name}'))
        self._remove_temporary()

    def _remove_temporary(self) -> None:
        for path in self.directory.glob(f'{TEMPORARY}*/'):
            shutil.rmtree(path)


def load_part(path: str | os.PathLike, name: str, trust: bool = False) -> Any:
    """What the part `name` saved; `path` is a checkpoint, a folder of checkpoints or
    the folder of a run. trust: loads it even if that may run code of others."""
    folder = _find(Path(path).expanduser())
    manifest = _manifest(folder)
    _check_part(folder, manifest, name)
    trust = trust or _is_own(folder, manifest, name)
    return _unpickle(folder / f'{name}.pkl', trust)


def is_own(path: str | os.PathLike, name: str) -> bool:
    """Whether this user has written the part that `load_part` finds, where it is."""
    folder = _find(Path(path).expanduser())
    return _is_own(folder, _manifest(folder), name)


def load_step(path: str | os.PathLike) -> int:
    """The step at which the checkpoint that `load_part` finds was made."""
    return _manifest(_find(Path(path).expanduser()))['step']


def point_to(directory: Path, version: str) -> bool:
    """Makes a save the one that is loaded next; False if it is not there."""
    if not (directory / version / MANIFEST).exists():
        return False
    pointer = directory / LATEST
    if not pointer.exists() or pointer.read_text().strip() != version:
        write_whole(pointer, version)
    return True


def write_whole(path: Path, text: str) -> None:
    """Replaces a small file; whatever happens, the old or the new one is there."""
    temporary = path.with_name(f'{TEMPORARY}{path.name}')
    _write_file(temporary, lambda file: file.write(text.encode()))
    temporary.replace(path)
    _sync_folder(path.parent)


def _find(path: Path) -> Path:
    """Folder of the newest checkpoint in `path`."""
    # First: the checkpoints of a distributed run have a manifest of their own.
    for folder in ('', RUN_SUBFOLDER, f'{RUN_SUBFOLDER}/{AGENT}', AGENT):
        pointer = path / folder / LATEST
        if pointer.is_file():  # which a pipe is not
            return pointer.parent / pointer.read_text().strip()
    if (path / MANIFEST).exists():
        return path
    raise CheckpointError(
        f'There is no checkpoint in {path}. Give the folder of a run, its '
        f"'{RUN_SUBFOLDER}' folder or one checkpoint in that."
    )


def _manifest(folder: Path) -> dict[str, Any]:
    try:
        manifest = json.loads(read_plain(folder / MANIFEST, LARGEST_MANIFEST))
        made_by, step = manifest['format'], manifest['step']
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _broken(folder, f'{MANIFEST} cannot be read: {error!r}') from error
    if made_by != FORMAT or not isinstance(step, int):
        raise CheckpointError(
            f'The checkpoint {folder} has format {made_by}, this version reads '
            f'format {FORMAT}. It was written with {manifest.get("versions")}: '
            'use those versions, or start in a new folder.'
        )
    return manifest


def _check_part(folder: Path, manifest: dict[str, Any], name: str) -> None:
    sizes = manifest['parts']
    if name not in sizes:
        raise CheckpointError(
            f"The checkpoint {folder} has no part '{name}', only {sorted(sizes)}. "
            'It belongs to another kind of run: choose another folder.'
        )
    path = folder / f'{name}.pkl'
    found = path.stat().st_size if path.is_file() else None
    if found != sizes[name]:
        what = 'is missing' if found is None else f'has {found} bytes'
        raise _broken(folder, f'{path.name} {what}, expected {sizes[name]} bytes')


def _is_own(folder: Path, manifest: dict[str, Any], name: str) -> bool:
    path, seals = folder / f'{name}.pkl', manifest.get('seals')
    return (
        isinstance(seals, dict)
        and ownership.is_sealed(path, seals.get(name))
        and ownership.is_private(folder, folder / MANIFEST, path)
    )


def _unpickle(path: Path, trust: bool) -> Any:
    try:
        with path.open('rb') as file:
            return unpickling.load(file, trust)
    except unpickling.UntrustedGlobal as error:
        raise TrustError(
            f'{path} {error}. Loading it would run code, and this user has not written '
            'that file here: it was copied, unpacked, or belongs to another user. Give '
            '--trust (in Python trust=True) if you trust its author.'
        ) from error
    except Exception as error:  # bad bytes can raise nearly anything
        raise _broken(path.parent, f'{path.name}: {error!r}') from error


def _broken(folder: Path, what: str) -> CheckpointError:
    return CheckpointError(
        f'The checkpoint {folder} is broken: {what}. Restore it from a copy, write '
        f"the name of another checkpoint into '{folder.parent / LATEST}', or remove "
        f'{folder.parent} to start from the beginning.'
    )


def _write_file(path: Path, dump: Callable[[BinaryIO], Any]) -> int:
    """Writes and waits until the disk has it; returns the size in bytes."""
    with path.open('wb') as file:
        dump(file)
        file.flush()
        os.fsync(file.fileno())
        return file.tell()


def _sync_folder(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _versions() -> dict[str, str]:
    found = {'python': platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue  # run from a source tree, or without an agent that needs it
    return found
