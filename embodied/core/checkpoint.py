"""Checkpoints: owns the saves of a run's parts and the thread that writes them.

Pickle runs code while it loads. So a part that is not this user's own, as it was
written (`ownership.py`), may hold arrays and plain values only, unless it is trusted.
The layout of the files is in checkpoint_folder.py.
"""

import os
import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from . import unpickling
from .checkpoint_folder import (
    AGENT,
    LATEST,
    MANIFEST,
    Note,
    Save,
    is_clear,
    list_saves,
    new_name,
    point_to,
    remove_temporary,
    use_newest,
    write_save,
)
from .errors import CheckpointError
from .files import TEMPORARY

__all__ = [
    'RUN_SUBFOLDER',
    'Checkpoint',
    'Saveable',
    'is_own',
    'load_part',
    'load_part_and_step',
    'settle',
]

PROTOCOL = 5  # of pickle: the first that writes arrays without a detour
RUN_SUBFOLDER = 'ckpt'  # where runs keep their checkpoints, by role if they have some


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
        note: Note = lambda event, **details: None,
        trust: bool = False,
    ):
        """keep: how many of the newest saves stay; `pinned` names one that stays, too,
        as long as something else refers to it. note: adds an event about saves that
        are not whole. trust: loads saves of others as well, whatever is in them."""
        assert keep >= 1, keep
        self.directory = Path(directory).expanduser()
        self.keep = keep
        self.version = ''  # name of the newest save of this object, once it is whole
        self._pinned = pinned
        self._note = note
        self._trust = trust
        self._spared: set[str] = set()  # saves that were found in an unclear state
        self._passed: set[str] = set()  # newer than what was loaded, so of no use
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
        self.join()
        error = self.take_error()
        if error is not None:
            raise error

    def join(self) -> None:
        """Returns when the last save is over, whether or not it could be written."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def take_error(self) -> CheckpointError | None:
        """Why the last save could not be written, once; never waits."""
        if self._error is None or self.busy:
            return None
        cause, self._error = self._error, None
        error = CheckpointError(
            f'Could not write a checkpoint to {self.directory}: '
            f'{type(cause).__name__}: {cause}. The one before it is still whole. '
            'Make room or repair the folder, then start the run again.'
        )
        error.__cause__ = cause
        return error

    def exists(self) -> bool:
        """Whether there are saves, whole or not: a run does not begin over them."""
        return (self.directory / LATEST).exists() or bool(list_saves(self.directory))

    def load(self) -> int:
        """Restores every registered part from the newest save; returns its step.

        A save that is damaged is reported, and the newest whole one is taken instead.
        """
        self.wait()
        _, save = use_newest(self.directory, self._parts, self._restore, self._note)
        point_to(self.directory, save.folder.name)
        names = [path.name for path in list_saves(self.directory)]
        self._passed = set(names[: names.index(save.folder.name)])
        return save.step

    def _restore(self, save: Save) -> None:
        for name, part in self._parts.items():
            trust = self._trust or save.is_own(name)
            data = save.load(name, trust)
            with unpickling.trusting(trust):
                part.load(data)

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
            version = new_name(step)
            if not is_clear(self.directory):
                self._spared |= {path.name for path in list_saves(self.directory)}
            write_save(self.directory, version, step, dumps)
            self.version = version
            then(version)
            self._prune()
        except Exception as error:  # noqa: BLE001, raised by the next save() or wait()
            self._error = error

    def _prune(self) -> None:
        """Removes all but the last `keep` checkpoints, the pinned one and those that
        were there when `latest` named none of them."""
        try:
            stay = {self.version, self._pinned(), *self._spared}
        except CheckpointError:
            return  # It cannot be known what something else refers to.
        older = [x for x in list_saves(self.directory) if x.name not in stay]
        older.sort(key=lambda path: path.name in self._passed)
        for path in older[self.keep - 1 :]:
            # Never half a checkpoint under a final name, even while it is deleted.
            path.rename(path.with_name(f'{TEMPORARY}{path.name}'))
        remove_temporary(self.directory)


def load_part(path: str | os.PathLike, name: str, trust: bool = False) -> Any:
    """What the part `name` saved; `path` is a checkpoint, a folder of checkpoints or
    the folder of a run. trust: loads it even if that may run code of others."""
    return load_part_and_step(path, name, trust)[0]


def load_part_and_step(
    path: str | os.PathLike, name: str, trust: bool = False
) -> tuple[Any, int]:
    """What a part saved, and the step at which that was."""
    load = lambda save: save.load(name, trust or save.is_own(name))
    found = _find(Path(path).expanduser())
    if isinstance(found, Save):  # The user has chosen it, so no other will do.
        found.verify([name])
        return load(found), found.step
    data, save = use_newest(found, [name], load)
    return data, save.step


def is_own(path: str | os.PathLike, name: str) -> bool:
    """Whether this user has written the part that `load_part` finds, where it is."""
    found = _find(Path(path).expanduser())
    if isinstance(found, Save):
        return found.is_own(name)
    return use_newest(found, [name], lambda save: save.is_own(name))[0]


def settle(
    directory: Path,
    prefer: str | None = None,
    note: Note = lambda event, **details: None,
) -> bool:
    """Makes the newest whole save, or the preferred one, the one that is loaded next.

    False if there are no saves. Raises CheckpointError if none of them is whole.
    """
    if not Checkpoint(directory).exists():
        return False
    _, save = use_newest(directory, None, lambda save: None, note, prefer)
    point_to(directory, save.folder.name)
    return True


def _find(path: Path) -> Path | Save:
    """The folder of checkpoints in `path`, or the checkpoint that it is."""
    # First: the checkpoints of a distributed run have a manifest of their own.
    for folder in ('', RUN_SUBFOLDER, f'{RUN_SUBFOLDER}/{AGENT}', AGENT):
        if Checkpoint(path / folder).exists():
            return path / folder
    if (path / MANIFEST).exists():
        return Save.read(path)
    raise CheckpointError(
        f'There is no checkpoint in {path}. Give the folder of a run, its '
        f"'{RUN_SUBFOLDER}' folder or one checkpoint in that."
    )
