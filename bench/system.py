"""System: the whole distributed system with the real agent on this machine.

    python bench/system.py                                 16 dummy environments
    python bench/system.py --envs 64 --minutes 3
    python bench/system.py --size tiny --minutes 2         on a CPU
    python bench/system.py --task atari_pong               where ale-py is installed
    python bench/system.py --timeline trace.json           for ui.perfetto.dev

The learner is measured alone first (bench/learner.py in a process of its own), then
`dreamer parallel` runs with the given train ratio. One JSON line: environment steps and
updates per second in the second half of the run, updates as a share of the stand-alone
rate, waits, and the processor time of each role in cores. --timeline keeps one second
of the second half: what every thread did (`run.timeline`).
"""

import argparse
import collections
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
from roles import role_of

from embodied.logging import read_records

LOG_EVERY = 2.0  # seconds
LATE = 0.8  # of a run, when its timeline begins
SHOWN = (
    *('fps/env', 'fps/train', 'learner/wait', 'learner/idle', 'actor/policy_ms'),
    *('actor/batch_rows', 'actor/calls_per_second', 'replay/insert_wait'),
    'replay/sample_wait',
)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--size', help='a preset; size12m on a GPU, tiny on a CPU')
    parser.add_argument('--task', default='dummy_disc')
    parser.add_argument('--envs', type=int, default=16)
    parser.add_argument('--ratio', type=float, default=32)
    parser.add_argument('--minutes', type=float, default=2)
    parser.add_argument('--cache', help='folder of compiled programs, to keep them')
    parser.add_argument('--timeline', type=Path, help='file for a second of the run')
    args, flags = parser.parse_known_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        cache = args.cache or f'{folder}/cache'
        alone, args.size = learner_alone(args.size, cache)
        flags = ['--jax.cache', cache, *flags]
        if args.size == 'tiny':  # its networks are for images of 16x16
            flags = ['--env.dummy.size', '16', *flags]
        if args.timeline:
            flags = ['--run.timeline', str(LATE * 60 * args.minutes), *flags]
        measured = run(args, Path(folder) / 'run', flags)
        if args.timeline:
            measured |= keep_timeline(Path(folder) / 'run', args.timeline)
    if 'fps/train' not in measured:
        raise SystemExit('No update in the second half: it needs more --minutes.')
    line = {
        'bench': 'system',
        **{k: getattr(args, k) for k in ('size', 'task', 'envs', 'ratio')},
        'alone': alone,
        'share': round(measured['fps/train'] / alone, 3),
        **measured,
    }
    print(json.dumps(line), flush=True)


def keep_timeline(logdir: Path, path: Path) -> dict[str, Any]:
    """Copies the timeline of a run: how large it is."""
    shutil.copy(logdir / 'timeline.json', path)
    events = json.loads(path.read_text())['traceEvents']
    megabytes = round(path.stat().st_size / 1e6, 2)
    return {'timeline': {'events': len(events), 'megabytes': megabytes}}


def learner_alone(size: str | None, cache: str) -> tuple[float, str]:
    """Train steps per second, end to end, with batches from memory, and the size."""
    script = Path(__file__).with_name('learner.py')
    command = [sys.executable, script, '--only', 'train', '--cache', cache]
    command += ['--size', size] if size else []
    result = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    lines = map(json.loads, result.stdout.splitlines())
    line = next(x for x in lines if x['figure'] == 'train')
    return line['train_steps'], line['size']


def run(args: Any, logdir: Path, flags: list[str]) -> dict[str, Any]:
    """Means over the second half of a run."""
    options = {
        'configs': args.size,
        'task': args.task,
        'logdir': logdir,
        'run.envs': args.envs,
        'run.eval_envs': 0,
        'run.train_ratio': args.ratio,
        'run.duration': 60 * args.minutes,
        'run.log_every': LOG_EVERY,
        'run.report_every': 0,
        'run.save_every': 0,
        'run.film_every': 0,
    }
    command = [sys.executable, '-m', 'dreamerv3', 'parallel']
    for name, value in options.items():
        command += [f'--{name}', str(value)]
    begin = time.time()
    process = subprocess.Popen([*command, *flags], stdout=sys.stderr)
    cores = Cores(psutil.Process(process.pid))
    half = 30 * args.minutes
    used: dict[str, float] = {}
    if _runs_after(process, half):
        cores.begin()
        if _runs_after(process, half - 2 * LOG_EVERY):
            used = cores.result()
    if process.wait():
        raise SystemExit('The run failed; its messages are above.')
    records = list(read_records(logdir / 'metrics.jsonl'))
    late = [x for x in records if begin + half < x['time'] < begin + 2 * half]
    return {**_means(late), 'cores': used}


def _runs_after(process: subprocess.Popen, seconds: float) -> bool:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return True
    return False


class Cores:
    """Processor time of all processes of a run, by role."""

    def __init__(self, launcher: psutil.Process):
        self._launcher = launcher
        self._before: dict[int, float] = {}
        self._began = 0.0

    def begin(self) -> None:
        self._before = {pid: seconds for pid, _, seconds in self._times()}
        self._began = time.monotonic()

    def result(self) -> dict[str, float]:
        """Cores in use since `begin`, by role."""
        elapsed = time.monotonic() - self._began
        used: collections.Counter[str] = collections.Counter()
        for pid, role, seconds in self._times():
            used[role] += (seconds - self._before.get(pid, 0.0)) / elapsed
        return {role: round(cores, 2) for role, cores in sorted(used.items())}

    def _times(self) -> list[tuple[int, str, float]]:
        """Process id, role and processor time of each."""
        times = []
        for process in (self._launcher, *self._launcher.children(recursive=True)):
            try:
                spent, role = process.cpu_times(), role_of(process)
            except psutil.NoSuchProcess:
                continue
            times.append((process.pid, role or 'launcher', spent.user + spent.system))
        return times


def _means(records: list[dict[str, Any]]) -> dict[str, float]:
    means = {}
    for name in SHOWN:
        values = [x[name] for x in records if x.get(name) is not None]
        if values:
            means[name] = round(sum(values) / len(values), 3)
    return means


if __name__ == '__main__':
    main()
