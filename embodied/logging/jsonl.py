"""JSON-lines files of a run: metrics, episode scores and events.

    metrics.jsonl  {"step": 1200, "time": 1760000000.0, "train/loss/image": 3.1, ...}
    scores.jsonl   {"step": 1200, "time": ..., "env": 3, "score": 1.0, "length": 7,
                    "eval": false}
    events.jsonl   {"time": ..., "event": "start", ...}
    eval.jsonl     {"step": 1200, "time": ..., "mean": 0.9, "scores": [1.0, ...], ...}

One line per record and one system call per line, so a reader never sees half of it
unless the process was killed in between; that half is cut when the file is opened
again. `time` is seconds since 1970. Numbers that JSON cannot express are null.
"""

import contextlib
import errno
import fcntl
import json
import logging
import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..core.outside import open_plain
from .logger import Entry, Episode, scalars

log = logging.getLogger(__name__)

__all__ = [
    'EVENTS',
    'EvalFile',
    'EventFile',
    'JsonlOutput',
    'LineFile',
    'ScoreFile',
    'add_event',
    'last_record',
    'read_records',
    'read_scores',
]

EVENTS, SCORES = 'events.jsonl', 'scores.jsonl'
EPISODE = {'step', 'env', 'score', 'length', 'eval'}  # keys of its lines

RECENT = 1 << 20  # bytes at the end of a file that `last_record` looks at
TAIL_BLOCK = 1 << 16  # bytes per step when looking for the last line from the end


class LineFile:
    """A file of JSON records that is only appended to and survives a crash."""

    def __init__(self, path: str | os.PathLike):
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._fd = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        with self._locked():
            os.ftruncate(self._fd, _sound_size(self._fd))

    def append(self, record: Mapping[str, Any]) -> None:
        line = json.dumps(_finite(record), allow_nan=False) + '\n'
        data = line.encode()
        with self._locked():
            written = os.write(self._fd, data)
            if written < len(data):
                # Half a line would spoil the next one, too.
                os.ftruncate(self._fd, os.fstat(self._fd).st_size - written)
                raise OSError(
                    errno.ENOSPC,
                    f'Only {written} of {len(data)} bytes fit into the file',
                    str(self.path),
                )

    def last(self) -> dict[str, Any] | None:
        """The newest record, None in an empty file."""
        end = os.fstat(self._fd).st_size
        if not end:
            return None
        start = _line_start(self._fd, end - 1)
        return json.loads(os.pread(self._fd, end - start, start))

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Holds the lock of the file: several processes write events."""
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_UN)


class EventFile:
    """What happened to a run: starts, changed options, stops."""

    def __init__(self, logdir: str | os.PathLike):
        self._file = LineFile(Path(logdir) / EVENTS)

    def add(self, event: str, **details: Any) -> None:
        self._file.append({'time': _now(), 'event': event, **details})

    def close(self) -> None:
        self._file.close()


def add_event(logdir: str | os.PathLike, event: str, **details: Any) -> None:
    """Appends one event to the file of a run."""
    with contextlib.closing(EventFile(logdir)) as events:
        events.add(event, **details)


class StepFile:
    """A line file whose steps go back only after an event that says so.

    A run that was killed resumes from a checkpoint older than its last lines. They
    are kept: they are true, and the steps after the checkpoint are repeated.
    """

    def __init__(self, logdir: str | os.PathLike, name: str):
        self._logdir = logdir
        self._file = LineFile(Path(logdir) / name)
        step = (self._file.last() or {}).get('step')
        self._kept = step if isinstance(step, int | float) else -1

    def append(self, step: int, record: Mapping[str, Any]) -> None:
        if step < self._kept:
            details = {'file': self._file.path.name, 'kept': self._kept}
            add_event(self._logdir, 'rewind', step=step, **details)
        self._kept = -1
        self._file.append({'step': step, 'time': _now(), **record})

    def close(self) -> None:
        self._file.close()


class JsonlOutput:
    """Logger output with one line of scalars and strings per write."""

    def __init__(self, logdir: str | os.PathLike):
        self._file = StepFile(logdir, 'metrics.jsonl')

    def __call__(self, entries: Sequence[Entry]) -> None:
        record: dict[str, Any] = {k: v for _, k, v in entries if isinstance(v, str)}
        record.update(scalars(entries))
        self._file.append(max(step for step, _, _ in entries), record)

    def close(self) -> None:
        self._file.close()


class ScoreFile:
    """One line per finished episode, owned by the loop that plays them.

    logger: of the run, which is told each episode if it has a method for it. If one of
    its outputs writes lines of another format into the same file, as that of the
    reference does, this output is taken off the logger.
    """

    def __init__(self, logdir: str | os.PathLike, logger: Any = None):
        path = Path(logdir) / SCORES
        outputs = getattr(logger, 'outputs', ())
        others = [output for output in outputs if not _writes(output, path)]
        if len(others) < len(outputs):
            print(
                f'{path} gets one line per episode from the loop. The output of the '
                'logger that writes into the same file is left out.'
            )
            logger.outputs = others
        self._tell = getattr(logger, 'add_episode', lambda episode: None)
        self._file = StepFile(logdir, SCORES)

    def add(
        self, step: int, result: Mapping[str, Any], env: int, is_eval: bool = False
    ) -> None:
        """Appends a result of `EpisodeStats.add`."""
        score, length = float(result['score']), int(result['length'])
        record = {'env': int(env), 'score': score, 'length': length, 'eval': is_eval}
        self._file.append(int(step), record)
        self._tell(Episode(int(step), score, length, is_eval))

    def close(self) -> None:
        self._file.close()


def read_scores(logdir: str | os.PathLike) -> list[dict[str, Any]]:
    """The episodes of a run. Lines of another format, which a logger of the user may
    have written into the same file, are left out."""
    return [x for x in read_records(Path(logdir) / SCORES) if x.keys() >= EPISODE]


def _writes(output: Any, path: Path) -> bool:
    """Whether an output of a logger writes into a file, as outputs of elements do."""
    name = getattr(output, '_filename', None)
    return name is not None and os.path.realpath(str(name)) == os.path.realpath(path)


class EvalFile:
    """One line per evaluation of a trained agent by `dreamer eval`."""

    def __init__(self, logdir: str | os.PathLike):
        self._file = LineFile(Path(logdir) / 'eval.jsonl')

    def add(self, step: int, record: Mapping[str, Any]) -> None:
        self._file.append({'step': int(step), 'time': _now(), **record})

    def close(self) -> None:
        self._file.close()


def read_records(path: str | os.PathLike) -> list[dict[str, Any]]:
    """All whole lines of a file that may still be written; [] if there is none.

    Lines that are no records, as a damaged disk leaves them, are left out.
    """
    with open_plain(path, follow=True) as file:
        lines = file.read().split(b'\n')[:-1] if file else []
    records = [json.loads(line) for line in lines if _is_record(line)]
    if len(records) < len(lines):
        bad = len(lines) - len(records)
        log.warning('%s: %d lines are damaged and left out.', path, bad)
    return records


def last_record(path: str | os.PathLike, name: str) -> dict[str, Any] | None:
    """The newest record with a number `name` among the last ones of a file."""
    path = Path(path)
    if not path.exists():
        return None
    with path.open('rb') as file:
        file.seek(max(0, path.stat().st_size - RECENT))
        lines = file.read().split(b'\n')
    records = (json.loads(line) for line in reversed(lines) if _is_record(line))
    number = lambda record: isinstance(record.get(name), int | float)
    return next((record for record in records if number(record)), None)


def _sound_size(fd: int) -> int:
    """Size of the file up to and with its last whole record."""
    end = _line_start(fd, os.fstat(fd).st_size)
    while end:
        start = _line_start(fd, end - 1)
        if _is_record(os.pread(fd, end - start, start)):
            break
        end = start
    return end


def _is_record(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


def _line_start(fd: int, end: int) -> int:
    """Offset behind the last newline before `end`."""
    while end > 0:
        start = max(0, end - TAIL_BLOCK)
        found = os.pread(fd, end - start, start).rfind(b'\n')
        if found >= 0:
            return start + found + 1
        end = start
    return 0


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _now() -> float:
    return round(time.time(), 3)
