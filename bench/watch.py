"""Dashboard: first curve, memory and live updates with 50 runs of a day each.

    python bench/watch.py              50 runs of a day, about a minute
    python bench/watch.py --runs 200   more of them
    python bench/watch.py --no-browser  questions over HTTP only

One JSON line per figure. A day is 8,640 lines of 88 metrics and 20,000 episodes: 30 MB.
All runs but the one that grows are hard links to the files of one, so that the bench
fits on a disk; the dashboard reads each of them. Times count from the start of the
dashboard's process.
"""

import argparse
import contextlib
import http.client
import json
import math
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import psutil
from ruamel.yaml import YAML

RUNS = 50
LINES, EPISODES = 8640, 20_000  # of a day: a line each 10 seconds
METRICS = 88
FIRST_PICK = 6  # runs that a page shows unless told otherwise
NAMES = [f'train/group{i // 10}/metric{i:02d}' for i in range(METRICS - 1)]
NAMES.append('run/seconds')
CHARTS = NAMES[:8]  # that a page asks for at once
UPDATES = 10  # lines that are added while a page looks
CONFIGS = Path(__file__).parents[1] / 'dreamerv3' / 'configs.yaml'
START = 1.7e9  # seconds since 1970


class Server:
    """A dashboard process, asked over HTTP."""

    def __init__(self, folder: Path):
        self.began = time.perf_counter()
        self.process = subprocess.Popen(
            [sys.executable, '-m', 'dreamerv3', 'watch', str(folder), '--port', '0'],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout
        self.url = self.process.stdout.readline().split()[-1]
        self.port = urlsplit(self.url).port or 0

    @property
    def seconds(self) -> float:
        """Since the process was started."""
        return time.perf_counter() - self.began

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


def make_runs(folder: Path, runs: int) -> None:
    options = YAML(typ='safe').load(CONFIGS.read_text())['defaults']
    first = folder / 'run000'
    for number in range(runs):
        run = folder / f'run{number:03d}'
        run.mkdir(parents=True)
        own = {'task': f'toy_task{number // 5}', 'seed': number % 5}
        with (run / 'config.yaml').open('w') as file:
            YAML().dump(options | own | {'logdir': str(run)}, file)
        event = {'time': START + number, 'event': 'start', 'pid': 1, 'host': '?'}
        (run / 'events.jsonl').write_text(json.dumps(event) + '\n')
        for name in ('metrics.jsonl', 'scores.jsonl') if number else ():
            os.link(first / name, run / name)
        if not number:
            write_day(run)
    last = folder / f'run{runs - 1:03d}' / 'metrics.jsonl'
    last.unlink()
    shutil.copy(first / 'metrics.jsonl', last)  # the one that grows


def write_day(run: Path) -> None:
    noise = random.Random(0)
    with (run / 'metrics.jsonl').open('w') as file:
        file.writelines(metrics_line(index, noise) for index in range(LINES))
    with (run / 'scores.jsonl').open('w') as file:
        for index in range(EPISODES):
            record = {'step': 43 * index, 'time': START + 4.3 * index, 'env': index % 8}
            record |= {'score': noise.gauss(0, 1), 'length': 1000, 'eval': False}
            file.write(json.dumps(record) + '\n')


def metrics_line(index: int, noise: random.Random) -> str:
    record: dict[str, float] = {'step': 100 * index, 'time': START + 10 * index}
    for i, name in enumerate(NAMES):
        record[name] = math.sin(index / 500 + i) + noise.gauss(0, 0.3)
    record['run/seconds'] = 10.0 * index
    return json.dumps(record) + '\n'


def page(server: Server) -> None:
    """As a page does it: the first runs that it hears of, their names, charts."""
    ids: list[str] = []
    changes = server.changes()
    while len(ids) < FIRST_PICK:
        ids += next(changes)
    report('runs_listed', seconds=server.seconds)
    runs = ','.join(ids[:FIRST_PICK])
    while not (names := server.get('/api/names', runs=runs)):
        pass
    report('names_listed', seconds=server.seconds)
    assert set(NAMES) <= set(names)
    first = read_on(server, runs, CHARTS, until_whole=False)
    report('first_curve', 'below 2 s', seconds=server.seconds, curves=first)
    whole = read_on(server, runs, CHARTS)
    cpu = server.cpu()
    report('first_page_whole', seconds=server.seconds, curves=whole, cpu_seconds=cpu)


def read_on(
    server: Server,
    runs: str,
    metrics: Sequence[str],
    until_whole: bool = True,
    **x: Any,
) -> int:
    """Asks until a chart has curves, or all of them; returns how many it has."""
    while True:
        answer = server.get('/api/series', runs=runs, metric=metrics, **x)
        curves = len(answer['charts'][metrics[0]]['curves'])
        if curves and not (until_whole and answer.get('reading')):
            return curves


def all_runs(server: Server, count: int) -> None:
    """One metric of all runs, each and merged by seed."""
    ids: set[str] = set()
    for runs in server.changes():
        ids.update(runs)
        if len(ids) == count:
            break
    for group in ('', 'seeds'):
        began = time.perf_counter()
        curves = read_on(server, ','.join(ids), [NAMES[7]], group=group)
        seconds = time.perf_counter() - began
        report('all_runs', seconds=seconds, merged=bool(group), curves=curves)


def live(server: Server, run: Path) -> None:
    """From a new line of a run to the curve that has it; the stat is due each 0.5 s."""
    noise, seconds = random.Random(1), []
    changes = server.changes()
    known = next(changes)
    key = next(key for key, summary in known.items() if summary['name'] == run.name)
    cpu = server.cpu()
    began = time.perf_counter()
    for index in range(LINES, LINES + UPDATES):
        sent = time.perf_counter()
        with (run / 'metrics.jsonl').open('a') as file:
            file.write(metrics_line(index, noise))
        while key not in next(changes):
            pass
        chart = server.get('/api/series', runs=key, metric=CHARTS)['charts'][NAMES[0]]
        seconds.append(time.perf_counter() - sent)
        assert chart['x'][-1] <= 100 * index
    share = (server.cpu() - cpu) / (time.perf_counter() - began)
    report(
        'live_update', seconds=sum(seconds) / UPDATES, most=max(seconds), cores=share
    )


def in_browser(folder: Path) -> None:
    """From the start of the dashboard to the first and the last curve in Chromium."""
    from playwright.sync_api import sync_playwright

    legends = 'n => document.querySelectorAll(".card .legend li b").length >= n'
    program = shutil.which('chromium') or shutil.which('google-chrome')
    with sync_playwright() as playwright:
        flags = ['--no-sandbox'] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=program, args=flags)
        # The page's policy forbids eval, with which the driver would wait.
        view = browser.new_context(bypass_csp=True).new_page()
        with contextlib.closing(Server(folder)) as server:
            view.goto(server.url)
            for count in (1, FIRST_PICK):
                view.wait_for_function(legends, arg=count, polling='raf')
                report('in_browser', seconds=server.seconds, curves=count)
        browser.close()


def report(name: str, bar: str = '', **figures: float) -> None:
    plain = {key: round(float(value), 4) for key, value in figures.items()}
    print(json.dumps({'bench': f'dashboard/{name}', **plain, 'bar': bar}), flush=True)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--runs', type=int, default=RUNS)
    parser.add_argument('--no-browser', dest='browser', action='store_false')
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place, 'logdir')
        make_runs(folder, args.runs)
        with contextlib.closing(Server(folder)) as server:
            page(server)
            all_runs(server, args.runs)
            live(server, folder / f'run{args.runs - 1:03d}')
            report('memory', 'below 300 MB', megabytes=server.megabytes())
        if args.browser:
            in_browser(folder)


if __name__ == '__main__':
    main()
