"""Records of metrics.jsonl and scores.jsonl: numbers over steps and time."""

import json
import math
import os
from collections.abc import Callable, Collection, Iterator
from typing import Any, BinaryIO, TypeAlias

import numpy as np

from ..runs.run_files import parse_object, printable
from . import buckets

__all__ = [
    'FILES',
    'MOST_NAMES',
    'READ',
    'SCORES',
    'Columns',
    'current_name',
    'read_part',
    'sample_lines',
]

SCORES = 'scores/'  # prefix of what comes from scores.jsonl
FORMER_EVAL, EVAL = 'eval_episode/', 'eval/'
FORMER_NAMES = {
    'scores/eval_score': 'scores/eval/score',
    'scores/eval_length': 'scores/eval/length',
}
LONGEST_NAME = 200  # characters of a metric's name
MOST_NAMES = 1000  # metrics of a file
READ = 4 << 20  # bytes that are read at once, in about 50 ms
LONGEST_LINE = 1 << 19  # bytes; a longer one is skipped
# No number of a run is near this, and sums of squares of larger ones overflow.
LARGEST = 1e150

Record: TypeAlias = tuple[float, float, dict[str, Any]]


class Columns:
    """Points per metric, collected record by record.

    Neighboring lines mostly have the same metrics: those become one table, because a
    Python object per number would cost more than reading the file.
    """

    def __init__(self) -> None:
        self._tables: dict[tuple[str, ...], list[list[Any]]] = {}
        self._count = 0
        self.start: float | None = None  # time of the first record

    def take(self, lines: list[bytes], parse: 'Parser') -> None:
        """Adds the points of the lines that are records."""
        for values in _objects(lines):
            record = parse(values)
            if record is None:
                continue
            step, time, values = record
            if self.start is None:
                self.start = time
            table = self._tables.setdefault(tuple(values), [])
            table.append([self._count, step, time, *values.values()])
            self._count += 1

    def series(
        self, only: Collection[str] | None = None
    ) -> Iterator[tuple[str, np.ndarray]]:
        """Names, all or some, and their points as they came, as buckets of one."""
        pieces: dict[str, list[np.ndarray]] = {}
        for names, rows in self._tables.items():
            table = _numbers(rows)
            for column, name in enumerate(names, 3):
                if only is not None and printable(name) not in only:
                    continue
                if name in pieces or (
                    len(pieces) < MOST_NAMES and len(name) <= LONGEST_NAME
                ):
                    piece = table[:, [0, 1, 2, column]]
                    pieces.setdefault(name, []).append(piece)
        for name, parts in pieces.items():
            points = np.concatenate(parts)
            points = points[np.abs(points[:, 3]) < LARGEST]  # NaN is not, either
            if len(points):
                points = points[np.argsort(points[:, 0])]
                yield printable(name), buckets.single(points[:, 1:])


def _numbers(rows: list[list[Any]]) -> np.ndarray:
    """The rows as float64 [N, K], what is no number as NaN."""
    try:
        return np.array(rows, np.float64)
    except (ValueError, TypeError, OverflowError):  # text or something nested among it
        return np.array([[_number(value) for value in row] for row in rows])


def _number(value: Any) -> float:
    if type(value) is float or (type(value) is int and abs(value) < LARGEST):
        return float(value)
    return math.nan


def current_name(name: str) -> str:
    """The name of today for a metric that version 0.1.0 called by another."""
    if name.startswith(FORMER_EVAL):
        return EVAL + name.removeprefix(FORMER_EVAL)
    return FORMER_NAMES.get(name, name)


def metrics_record(values: dict[str, Any]) -> Record | None:
    """A line of metrics.jsonl: every number but step and time is a metric."""
    if f'{FORMER_EVAL}score' in values:
        # Version 0.1.0 wrote episodes by this name, and the means of some by today's.
        renamed = {current_name(key): value for key, value in values.items()}
        values = renamed | {key: values[key] for key in renamed.keys() & values.keys()}
    return _located(values.pop('step', None), values.pop('time', None), values)


def scores_record(values: dict[str, Any]) -> Record | None:
    """A line of scores.jsonl; the metrics of evaluation episodes have other names."""
    kind = 'eval/' if values.get('eval') is True else ''
    named = {f'{SCORES}{kind}{key}': values.get(key) for key in ('score', 'length')}
    return _located(values.get('step'), values.get('time'), named)


Parser: TypeAlias = Callable[[dict[str, Any]], Record | None]
FILES: dict[str, Parser] = {
    'metrics.jsonl': metrics_record,
    'scores.jsonl': scores_record,
}


def _located(step: Any, time: Any, values: dict[str, Any]) -> Record | None:
    for number in (step, time):
        if type(number) not in (int, float) or not -LARGEST < number < LARGEST:
            return None
    return float(step), float(time), values


def read_part(file: BinaryIO, start: int, parse: Parser) -> tuple[int, Columns]:
    """Points of the next whole lines of a file, at most `READ` bytes of it.

    Returns the offset behind them, which is `start` where no line is complete. Lines
    that are not records are left out.
    """
    data = os.pread(file.fileno(), READ, start)
    end = data.rfind(b'\n') + 1
    columns = Columns()
    columns.take(data[:end].split(b'\n')[:-1], parse)
    if not end and len(data) > LONGEST_LINE:
        end = len(data)  # no record is so long; its rest is not JSON and left out, too
    return start + end, columns


def sample_lines(file: BinaryIO, start: int, count: int, parse: Parser) -> Columns:
    """About `count` lines that are evenly spread over the rest of the file."""
    columns = Columns()
    size = os.fstat(file.fileno()).st_size
    reach = 4096  # bytes that hold a line, adapted to those found
    lines = []
    latest = (
        -1
    )  # where the last one begins; shorter files have fewer lines than asked for
    for position in np.linspace(start, size, count, endpoint=False):
        offset = int(position)
        data = os.pread(file.fileno(), reach, offset)
        # A position inside of a line finds the next one.
        first = 0 if offset == start else data.find(b'\n') + 1
        last = data.find(b'\n', first)
        if last < 0 or (offset != start and not first):
            reach = min(2 * reach, LONGEST_LINE)
            continue
        if offset + first > latest:
            latest = offset + first
            lines.append(data[first:last])
    columns.take(lines, parse)
    return columns


def _objects(lines: list[bytes]) -> Iterator[dict[str, Any]]:
    """The JSON objects among the lines."""
    try:  # all at once, which takes half of the time
        values = json.loads(b'[%s]' % b','.join(lines))
    except (ValueError, RecursionError):
        values = []
    if len(values) != len(lines):
        values = map(parse_object, lines)
    return (value for value in values if isinstance(value, dict))
