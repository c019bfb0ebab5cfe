"""The index: decimated series of every file that was read so far, in one SQLite file.

    file    path, the hash of its first bytes, how many bytes are in the index
    series  buckets of one metric of one file

It is a cache: it can be deleted at any time, and is made anew when it does not fit. A
file advances by large parts only; what it has beyond them is read from the file itself
(`curves.py`), so that a growing run does not rewrite its series with every line.
"""

import hashlib
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import BinaryIO

import numpy as np

from embodied.core.errors import ConfigError

from ..runs.files import open_plain
from .buckets import BUCKET, EMPTY, Series
from .records import FILES, MOST_NAMES, Columns, read_parts

__all__ = ['PART', 'Index', 'default_path']

VERSION = 1  # of the tables
HEAD = 4096  # bytes at the start that tell one file from another of the same name
PART = 1 << 18  # bytes that a file must have grown by before it advances
ADVANCE = 32 << 20  # bytes per transaction
BUSY = 30.0  # seconds to wait for another dashboard that writes the same index

TABLES = f"""
begin immediate;
create table if not exists file (
    id integer primary key, path blob unique, head blob, offset int, broken int);
create table if not exists series (
    file int references file(id) on delete cascade, name text, stride int,
    buckets blob, unique (file, name));
pragma user_version = {VERSION};
commit;
"""


def default_path() -> Path:
    """Where indices are kept unless told otherwise."""
    cache = os.environ.get('XDG_CACHE_HOME') or '~/.cache'
    return Path(cache).expanduser() / 'dreamer-parallel' / 'watch.sqlite'


class Index:
    """Series of files by path; one writer at a time, any number of readers."""

    def __init__(self, path: Path):
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._prepare()
        except (OSError, sqlite3.Error) as e:
            raise ConfigError(
                f'Cannot keep an index in {path}: {e}. Delete the file, or name '
                'another with --index.'
            ) from e

    def advance(self, path: Path, pause: Callable[[], None] = lambda: None) -> int:
        """Takes in the next part of a file; returns how many bytes are left for later.

        Less than `PART` is left alone and counts as nothing. `pause` is called often.
        """
        with self._connect('immediate') as db, open_plain(path) as file:
            if not file:
                return 0
            key, offset = _find(db, path, file)
            end = os.fstat(file.fileno()).st_size
            if end - offset < PART:
                return 0
            key = key or _insert(db, path, file)
            known: dict[str, Series | None] = dict.fromkeys(_names(db, key))
            parts = read_parts(file, offset, offset + ADVANCE, FILES[path.name])
            broken = 0
            for reached, bad, columns in parts:
                pause()
                _extend(db, key, known, columns)
                offset, broken = reached, broken + bad
            _store(db, key, offset, broken, known)
        return end - offset if end - offset >= PART else 0

    def read(
        self, path: Path, names: Iterable[str] | None
    ) -> tuple[int, dict[str, np.ndarray]]:
        """How far a file is known, and the buckets of its metrics, None: of all."""
        with self._connect() as db, open_plain(path) as file:
            if not file:
                return 0, {}
            key, offset = _find(db, path, file)
            if names is None:
                names = _names(db, key)
            found = {name: _load(db, key, name).buckets for name in names}
        return offset, {name: data for name, data in found.items() if len(data)}

    def names(self, path: Path) -> tuple[int, list[str]]:
        """How far a file is known, and which metrics that part has."""
        with self._connect() as db, open_plain(path) as file:
            if not file:
                return 0, []
            key, offset = _find(db, path, file)
            return offset, _names(db, key)

    def forget_missing(self) -> None:
        """Drops the files that are not there any more."""
        with self._connect('immediate') as db:
            for (path,) in db.execute('select path from file').fetchall():
                if not os.path.lexists(path):
                    db.execute('delete from file where path = ?', (path,))

    def _prepare(self) -> None:
        try:
            with self._connect() as db:
                (version,) = db.execute('pragma user_version').fetchone()
        except sqlite3.OperationalError:
            raise  # locked, or not ours to write
        except sqlite3.DatabaseError:
            version = -1  # not a database
        if version == VERSION:
            return
        if version:
            for suffix in ('', '-wal', '-shm'):
                Path(f'{self.path}{suffix}').unlink(missing_ok=True)
        with closing(sqlite3.connect(self.path, timeout=BUSY)) as db:
            db.execute('pragma journal_mode = wal')
            db.executescript(TABLES)

    @contextmanager
    def _connect(self, kind: str = 'deferred') -> Iterator[sqlite3.Connection]:
        """A connection of this thread within one transaction."""
        db = sqlite3.connect(self.path, timeout=BUSY, isolation_level=None)
        with closing(db):
            db.execute('pragma synchronous = off')  # a cache may be lost
            db.execute('pragma foreign_keys = on')
            db.execute(f'begin {kind}')
            yield db
            db.execute('commit')


def _find(db: sqlite3.Connection, path: Path, file: BinaryIO) -> tuple[int, int]:
    """Key and known bytes of a file, zeros if it is another than before."""
    query = 'select id, offset from file where path = ? and head = ? and offset <= ?'
    size = os.fstat(file.fileno()).st_size
    row = db.execute(query, (os.fsencode(path), _head(file), size)).fetchone()
    return row or (0, 0)


def _insert(db: sqlite3.Connection, path: Path, file: BinaryIO) -> int:
    name = os.fsencode(path)
    db.execute('delete from file where path = ?', (name,))
    query = 'insert into file (path, head, offset, broken) values (?, ?, 0, 0)'
    return db.execute(query, (name, _head(file))).lastrowid or 0


def _head(file: BinaryIO) -> bytes:
    return hashlib.sha256(os.pread(file.fileno(), HEAD, 0)).digest()


def _names(db: sqlite3.Connection, key: int) -> list[str]:
    query = 'select name from series where file = ? order by name'
    return [name for (name,) in db.execute(query, (key,))]


def _load(db: sqlite3.Connection, key: int, name: str) -> Series:
    query = 'select buckets, stride from series where file = ? and name = ?'
    row = db.execute(query, (key, name)).fetchone()
    return Series(np.frombuffer(row[0], BUCKET), row[1]) if row else EMPTY


def _extend(
    db: sqlite3.Connection, key: int, known: dict[str, Series | None], columns: Columns
) -> None:
    """Appends points to the known series, which are loaded when first needed."""
    for name, points in columns.series():
        if name not in known and len(known) < MOST_NAMES:
            known[name] = EMPTY
        if name in known:
            known[name] = (known[name] or _load(db, key, name)).append(points)


def _store(
    db: sqlite3.Connection,
    key: int,
    offset: int,
    broken: int,
    known: dict[str, Series | None],
) -> None:
    query = 'update file set offset = ?, broken = broken + ? where id = ?'
    db.execute(query, (offset, broken, key))
    db.executemany(
        'insert or replace into series (file, name, stride, buckets) '
        'values (?, ?, ?, ?)',
        [
            (key, name, series.stride, series.buckets.tobytes())
            for name, series in known.items()
            if series
        ],
    )
