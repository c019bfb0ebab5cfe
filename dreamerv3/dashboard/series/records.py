"""Records of metrics.jsonl and scores.jsonl: numbers over steps and time."""

import math
import os
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, BinaryIO, TypeAlias

import numpy as np

from ..runs.files import parse_object, printable
from . import buckets

__all__ = [
    'FILES',
    'MOST_NAMES',
    'READ',
    'SCORES',
    'Columns',
    'read_parts',
    'sample_lines',
]

SCORES = 'scores/'  # prefix of what comes from scores.jsonl
LONGEST_NAME = 200  # characters of a metric's name
MOST_NAMES = 1000  # metrics of a file
READ = 1 << 20  # bytes that are read at once
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

    def add(self, record: Record) -> None:
        step, time, values = record
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


def metrics_record(line: bytes) -> Record | None:
    """A line of metrics.jsonl: every number but step and time is a metric."""
    values = parse_object(line)
    if values is None:
        return None
    return _located(values.pop('step', None), values.pop('time', None), values)


def scores_record(line: bytes) -> Record | None:
    """A line of scores.jsonl, as metrics that are apart for training and evaluation."""
    values = parse_object(line)
    if values is None:
        return None
    kind = 'eval_' if values.get('eval') is True else ''
    named = {f'{SCORES}{kind}{key}': values.get(key) for key in ('score', 'length')}
    return _located(values.get('step'), values.get('time'), named)


Parser: TypeAlias = Callable[[bytes], Record | None]
FILES: dict[str, Parser] = {
    'metrics.jsonl': metrics_record,
    'scores.jsonl': scores_record,
}


def _located(step: Any, time: Any, values: dict[str, Any]) -> Record | None:
    for number in (step, time):
        if type(number) not in (int, float) or not -LARGEST < number < LARGEST:
            return None
    return float(step), float(time), values


def read_parts(
    file: BinaryIO, start: int, stop: int, parse: Parser
) -> Iterator[tuple[int, int, Columns]]:
    """Whole lines from `start` until `stop` is reached or the file ends.

    Yields how far it is, how many lines were broken, and the points of the others.
    """
    while start < stop:
        data = os.pread(file.fileno(), READ, start)
        end = data.rfind(b'\n') + 1
        columns, broken = Columns(), 0
        if end:
            broken = _add(data[: end - 1].split(b'\n'), parse, columns)
        elif len(data) > LONGEST_LINE:
            # Nobody can mean such a line. Its rest is no JSON and counts as broken.
            end = len(data)
        else:
            return  # the line is still being written
        start += end
        yield start, broken, columns


def sample_lines(file: BinaryIO, start: int, count: int, parse: Parser) -> Columns:
    """About `count` lines that are evenly spread over the rest of the file."""
    columns = Columns()
    size = os.fstat(file.fileno()).st_size
    reach = 4096  # bytes that hold a line, adapted to those found
    for position in np.linspace(start, size, count, endpoint=False):
        offset = int(position)
        data = os.pread(file.fileno(), reach, offset)
        # A position inside of a line finds the next one.
        first = 0 if offset == start else data.find(b'\n') + 1
        last = data.find(b'\n', first)
        if last < 0 or (offset != start and not first):
            reach = min(2 * reach, LONGEST_LINE)
            continue
        _add([data[first:last]], parse, columns)
    return columns


def _add(lines: Iterable[bytes], parse: Parser, columns: Columns) -> int:
    broken = 0
    for line in lines:
        record = parse(line)
        if record is None:
            broken += 1
        else:
            columns.add(record)
    return broken
