"""Labels: what users have written about a run, in a small file of its folder.

    dashboard.json  {"name": "baseline", "notes": "...", "hidden": false}

A folder may belong to another user, who may put links into it: the file is replaced
without following any, and what is no label is left as it is.
"""

import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from embodied.core.errors import ConfigError
from embodied.core.files import TEMPORARY

from .run_files import printable, read_object

__all__ = ['LABEL_FILE', 'Label', 'LabelChangedError', 'read_label', 'write_label']

LABEL_FILE = 'dashboard.json'
LONGEST_NAME = 200  # characters
LONGEST_NOTES = 20_000
MODE = 0o644


class Label(NamedTuple):
    """What users have written about a run; an empty name stands for the folder's."""

    name: str = ''
    notes: str = ''
    hidden: bool = False


class LabelChangedError(ConfigError):
    """The label is no longer what the user has seen when changing it."""


def read_label(folder: Path) -> Label:
    """The label of a run, an empty one if it has none."""
    return _parse(read_object(folder / LABEL_FILE) or {})


def write_label(
    folder: Path, changes: Mapping[str, Any], before: Mapping[str, Any]
) -> Label:
    """Changes some fields of a label and returns all of them.

    before: these fields as the user has seen them.
    """
    path = folder / LABEL_FILE
    record = read_object(path)
    if record is None and os.path.lexists(path):
        raise ConfigError(
            f'{path} is not a file of the dashboard, so it is left as it is. Move it '
            'away, then try again.'
        )
    known = _parse(record or {})
    _check(changes)
    for field in changes:
        if getattr(known, field) not in (before.get(field), changes[field]):
            raise LabelChangedError(
                f'The {field} of this run was changed elsewhere in the meantime, to: '
                f'{getattr(known, field)}'
            )
    label = known._replace(**changes)
    # Other fields may come from a later version.
    _replace(folder, json.dumps({**(record or {}), **label._asdict()}) + '\n')
    return label


def _parse(record: dict[str, Any]) -> Label:
    name, notes = record.get('name'), record.get('notes')
    return Label(
        printable(name)[:LONGEST_NAME] if isinstance(name, str) else '',
        printable(notes)[:LONGEST_NOTES] if isinstance(notes, str) else '',
        record.get('hidden') is True,
    )


def _check(changes: Mapping[str, Any]) -> None:
    unknown = changes.keys() - set(Label._fields)
    if unknown or not changes:
        raise ConfigError(
            f'Cannot change {", ".join(sorted(unknown)) or "nothing"} of a run. It has '
            f'{", ".join(Label._fields)}.'
        )
    for field, limit in (('name', LONGEST_NAME), ('notes', LONGEST_NOTES)):
        value = changes.get(field, '')
        if not isinstance(value, str) or printable(value) != value:
            raise ConfigError(f'The {field} of a run is text.')
        if len(value) > limit:
            raise ConfigError(
                f'The {field} has {len(value)} characters. At most {limit} are allowed.'
            )
    if not changes.get('name', '').isprintable():
        raise ConfigError('The name of a run is one line of printable characters.')
    if not isinstance(changes.get('hidden', False), bool):
        raise ConfigError('Whether a run is hidden is true or false.')


def _replace(folder: Path, text: str) -> None:
    """Replaces the file as a whole, in this folder and in no other."""
    place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    temporary = f'{TEMPORARY}{LABEL_FILE}-{secrets.token_hex(8)}'
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(temporary, flags, MODE, dir_fd=place), 'wb') as file:
            try:
                file.write(text.encode())
                file.flush()
                os.fsync(file.fileno())
                os.rename(temporary, LABEL_FILE, src_dir_fd=place, dst_dir_fd=place)
            except OSError:
                os.unlink(temporary, dir_fd=place)
                raise
        os.fsync(place)
    finally:
        os.close(place)
