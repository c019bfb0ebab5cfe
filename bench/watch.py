"""Dashboard: first curve, indexing and memory with many runs of many long metrics.

    python bench/watch.py                  100 runs x 50 metrics x 100k points
    python bench/watch.py --until-indexed  waits for the whole index, many minutes
    python bench/watch.py --until-indexed --lines 10000  a tenth of it

One JSON line per figure. All runs are hard links to one file of 230 MB, so that the
bench fits on a disk; the dashboard reads each of them.
"""

import argparse
import contextlib
import http.client
import json
import math
import os
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import psutil

RUNS, METRICS = 100, 50
FIRST_PICK = 6  # runs that a page shows unless told otherwise
NAMES = [f'train/group{i // 10}/metric{i:02d}' for i in range(METRICS)]
SECONDS = 10.0  # of indexing that are measured
MB = 1 << 20


class Server:
    """A dashboard process, asked over HTTP."""

    def __init__(self, folder: Path, index: Path):
        command = [sys.executable, '-m', 'dreamerv3', 'watch', str(folder)]
        command += ['--port', '0', '--index', str(index)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout
        url = self.process.stdout.readline().split()[-1]
        self.port = urlsplit(url).port or 0

    def get(self, path: str, **query: Any) -> Any:
        connection = http.client.HTTPConnection('127.0.0.1', self.port, timeout=600)
        connection.request('GET', f'{path}?{urlencode(query, doseq=True)}')
        body = connection.getresponse().read()
        connection.close()
        return json.loads(body)

    def changes(self) -> Iterator[dict[str, Any]]:
        connection = http.client.HTTPConnection('127.0.0.1', self.port, timeout=600)
        connection.request('GET', '/api/changes')
        for line in connection.getresponse():
            if line.startswith(b'data: '):
                yield json.loads(line[6:])['runs']
        connection.close()

    def cpu(self) -> float:
        """Seconds of a core since it began, its start and all."""
        times = psutil.Process(self.process.pid).cpu_times()
        return times.user + times.system

    def megabytes(self) -> float:
        """The most memory it ever had."""
        status = Path(f'/proc/{self.process.pid}/status').read_text()
        return int(status.partition('VmHWM:')[2].split()[0]) / 1024

    def close(self) -> None:
        self.process.terminate()
        self.process.communicate()


def make_runs(folder: Path, lines: int) -> None:
    noise = random.Random(0)
    first = folder / 'run000' / 'metrics.jsonl'
    for number in range(RUNS):
        run = folder / f'run{number:03d}'
        run.mkdir(parents=True)
        config = {'task': f'toy_task{number // 5}', 'seed': number % 5}
        (run / 'config.yaml').write_text(json.dumps(config))
        if number:
            os.link(first, run / 'metrics.jsonl')
            continue
        with first.open('w') as file:
            for line in range(lines):
                record = {'step': 100 * line, 'time': 1.7e9 + 10 * line}
                for i, name in enumerate(NAMES):
                    record[name] = math.sin(line / 5000 + i) + noise.gauss(0, 0.3)
                file.write(json.dumps(record) + '\n')


def first_curve(server: Server) -> None:
    """As a page does it: the first runs that it hears of, their names, a chart."""
    began = time.perf_counter()
    ids: list[str] = []
    changes = server.changes()
    while len(ids) < FIRST_PICK:
        ids += next(changes)
    runs = ','.join(ids[:FIRST_PICK])
    names = server.get('/api/names', runs=runs)
    chart = server.get('/api/series', runs=runs, metric=names[0])['charts'][names[0]]
    seconds = time.perf_counter() - began
    assert len(chart['curves']) == FIRST_PICK
    report('first_curve', 'below 2 s', seconds=seconds, cpu_seconds=server.cpu())


def all_curves(server: Server, name: str) -> None:
    """One metric of all runs, each and merged by seed, while it indexes."""
    ids: set[str] = set()
    for runs in server.changes():
        ids.update(runs)
        if len(ids) == RUNS:
            break
    for merge in ('0', '1'):
        began = time.perf_counter()
        query = {'runs': ','.join(ids), 'metric': NAMES[7], 'merge': merge}
        chart = server.get('/api/series', **query)['charts'][NAMES[7]]
        seconds = time.perf_counter() - began
        assert len(chart['curves']) == (RUNS if merge == '0' else RUNS // 5)
        report(name, merged=int(merge), seconds=seconds)


def indexing(server: Server, index: Path, size: int, whole: bool) -> None:
    """Megabytes of metrics that are taken in per second."""
    began, start = time.perf_counter(), known_bytes(index)
    for _ in server.changes():  # each tells that another file is done
        done, seconds = known_bytes(index), time.perf_counter() - began
        if done >= size or (seconds > SECONDS and not whole):
            break
    report('indexing', megabytes_per_second=(done - start) / MB / seconds)


def known_bytes(index: Path) -> int:
    with contextlib.closing(sqlite3.connect(index, timeout=60)) as db:
        return db.execute('select total(offset) from file').fetchone()[0]


def report(name: str, bar: str = '', **figures: float) -> None:
    plain = {key: round(float(value), 4) for key, value in figures.items()}
    print(json.dumps({'bench': f'dashboard/{name}', **plain, 'bar': bar}), flush=True)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--until-indexed', action='store_true')
    parser.add_argument('--lines', type=int, default=100_000)
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as place:
        folder, index = Path(place, 'logdir'), Path(place, 'index.sqlite')
        make_runs(folder, args.lines)
        size = (folder / 'run000' / 'metrics.jsonl').stat().st_size * RUNS
        with contextlib.closing(Server(folder, index)) as server:
            first_curve(server)
            all_curves(server, 'all_curves')
            indexing(server, index, size, args.until_indexed)
            all_curves(server, 'all_curves_later')
            report('memory', 'below 300 MB', megabytes=server.megabytes())


if __name__ == '__main__':
    main()
