"""Scores: trains tasks with their presets and compares the curves with a reference.

    python bench/scores.py                              a built-in task, two minutes
    python bench/scores.py atari100k_pong dmc_walker_walk --seeds 2 --minutes 9 \\
        --at-once 4 --state ~/scores --reference scores.csv

The same command goes on where the last one stopped, until every run has its steps:
after --minutes all runs are told to stop, and save. `dmc_vision:dmc_walker_walk` names
another preset than the usual one; what follows `--` goes to `dreamer`. The state:

    STATE/runs/<preset>-<task>-<seed>/   folders of the runs, with replay
    STATE/curves/<preset>-<task>-<seed>.csv   env_frames, score, length, time
    STATE/random.json  STATE/cache/      scores of random play; compiled programs

For machines that keep nothing, --save-to and --load-from carry it in files of 15 MB:
the curves, then every checkpoint and compiled program that fits into --carry-mb. Replay
is too large to be carried: such a run fills it anew, which costs it some steps, and a
run whose checkpoint did not fit begins again. Its curve stays if it reached further.

Prints one JSON line per task. `ratio` is the mean over the bins of the reference that
were reached, relative to the reference over the same bins, for Atari after subtracting
random play. `last_floor` is min - (max - min) of the reference in the last such bin.
"""

import argparse
import csv
import io
import json
import math
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import embodied
from dreamerv3 import config as config_lib
from embodied.core.random_agent import RandomAgent
from embodied.logging import read_records

RANDOM_EPISODES = 10
PART_BYTES = 15_000_000
MEMORY_SHARE = 0.9  # of the accelerator, for all runs together
GRACE = 90.0  # seconds that runs get to save
PASSING = 0.8  # ratio to the reference


class Preset(NamedTuple):
    """How to train tasks of a suite, and what to compare them with."""

    configs: tuple[str, ...]
    frames: float  # default budget: that of the reference
    reference: str = ''  # suite in the reference
    prefix: str = ''  # of its names there
    repeat: int = 1  # frames per step
    subtract_random: bool = False


PRESETS = {
    'atari100k': Preset(('atari100k', 'size12m'), 4e5, 'atari100k', 'atari_', 4, True),
    'dmc': Preset(('dmc_proprio',), 5e5, 'dmc_proprio', 'dmc_'),
    'dmc_vision': Preset(('dmc_vision', 'size12m'), 1e6, 'dmc_vision', 'dmc_'),
    'crafter': Preset(('crafter', 'size12m'), 1e6),
    'toy': Preset(('tiny', 'demo'), 1e6),
    'gym': Preset(('tiny', 'cartpole'), 1e6),
}


class Run(NamedTuple):
    preset: str
    task: str
    seed: int

    @property
    def name(self) -> str:
        return f'{self.preset}-{self.task}-{self.seed}'


class Curve(NamedTuple):
    """Training episodes in the order of their ends, all arrays [N]."""

    frames: np.ndarray
    scores: np.ndarray


class Bin(NamedTuple):
    edge: float  # frames at its right end
    mean: float
    low: float
    high: float


def main(argv: Sequence[str] | None = None) -> None:
    args, flags = parse(argv)
    with tempfile.TemporaryDirectory() as temporary:
        state = (args.state or Path(temporary)).expanduser()
        if args.load_from:
            unpack(args.load_from, state)
        runs = [
            Run(*split(task), seed)
            for seed in range(args.first_seed, args.first_seed + args.seeds)
            for task in args.tasks
        ]
        train(runs, state, args, flags)
        for run in runs:
            export(run, state)
        for preset, task in dict.fromkeys((run.preset, run.task) for run in runs):
            result = summary(preset, task, state, args.reference)
            print(json.dumps({'bench': 'scores', **result}), flush=True)
        if args.save_to:
            pack(runs, state, args.save_to, args.carry_mb * 1e6)


def parse(argv: Sequence[str] | None) -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('tasks', nargs='*', default=['toy_catch'])
    parser.add_argument('--seeds', type=int, default=1)
    parser.add_argument('--first-seed', type=int, default=0)
    parser.add_argument('--minutes', type=float, default=2.0, help='of this command')
    parser.add_argument(
        '--frames', type=float, help='of each run, in environment frames'
    )
    parser.add_argument('--at-once', type=int, default=1, help='runs at the same time')
    parser.add_argument('--script', choices=('parallel', 'train'), default='parallel')
    parser.add_argument('--size', help='size preset instead of the usual one')
    parser.add_argument('--state', type=Path)
    parser.add_argument('--reference', type=Path, help='CSV with curves to compare')
    parser.add_argument('--load-from', type=Path)
    parser.add_argument('--save-to', type=Path)
    parser.add_argument('--carry-mb', type=float, default=36.0)
    argv = list(sys.argv[1:] if argv is None else argv)
    cut = argv.index('--') if '--' in argv else len(argv)
    return parser.parse_args(argv[:cut]), argv[cut + 1 :]


def split(task: str) -> tuple[str, str]:
    """Preset and name of a task given as `name` or `preset:name`."""
    preset, _, name = task.rpartition(':')
    preset = preset or name.partition('_')[0]
    if preset not in PRESETS:
        raise SystemExit(f'No preset for {task!r}, there are {", ".join(PRESETS)}.')
    return preset, name


# Training


def train(
    runs: Iterable[Run], state: Path, args: argparse.Namespace, flags: Sequence[str]
) -> None:
    """Continues all runs until they are done or the time is over."""
    deadline = time.monotonic() + 60 * args.minutes
    share = MEMORY_SHARE / args.at_once
    environ = {**os.environ, 'XLA_PYTHON_CLIENT_MEM_FRACTION': f'{share:.3f}'}
    advance = lambda run: _advance(run, state, deadline, args, flags, environ)
    with ThreadPoolExecutor(args.at_once) as pool:
        for run, code in zip(runs, pool.map(advance, runs), strict=True):
            if code:
                log = state / 'runs' / f'{run.name}.log'
                print(f'{run.name} failed with {code}; {log} ends with:')
                print(log.read_text()[-2000:], flush=True)


def _advance(
    run: Run,
    state: Path,
    deadline: float,
    args: argparse.Namespace,
    flags: Sequence[str],
    environ: dict[str, str],
) -> int:
    """Exit code of the run's command, which gets the time that is left."""
    left = deadline - time.monotonic()
    if left <= 0:
        return 0
    command = dreamer(run, state, args, flags)
    folder = state / 'runs'
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f'{run.name}.log').open('ab') as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=subprocess.STDOUT, env=environ
        )
        try:
            return process.wait(left)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGTERM)
        try:
            return process.wait(GRACE)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()


def dreamer(
    run: Run, state: Path, args: argparse.Namespace, flags: Sequence[str]
) -> list[str]:
    preset = PRESETS[run.preset]
    configs = (*preset.configs, args.size) if args.size else preset.configs
    steps = (args.frames or preset.frames) / preset.repeat
    options = {
        'task': run.task,
        'seed': run.seed,
        'logdir': state / 'runs' / run.name,
        'jax.cache': state / 'cache',
        'logger.outputs': 'jsonl',
        'run.steps': steps,
        'run.duration': 0,
        'run.eval_envs': 0,
        'run.film_every': 0,
        'run.report_every': 0,
    }
    command = [sys.executable, '-m', 'dreamerv3', args.script, '--configs', *configs]
    return [*command, *(f'--{k}={v}' for k, v in options.items()), *flags]


# Curves


def export(run: Run, state: Path) -> None:
    """Writes the curve of a run, unless an earlier one reached further."""
    records = read_records(state / 'runs' / run.name / 'scores.jsonl')
    repeat = PRESETS[run.preset].repeat
    rows = [
        (repeat * e['step'], e['score'], e['length'], e['time'])
        for e in records
        if not e['eval']
    ]
    path = state / 'curves' / f'{run.name}.csv'
    if not rows or (path.exists() and load_curve(path).frames[-1] > rows[-1][0]):
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open('w', newline='') as file:
        writer = csv.writer(file)
        writer.writerow(('env_frames', 'score', 'length', 'time'))
        writer.writerows(rows)


def load_curve(path: Path) -> Curve:
    with path.open(newline='') as file:
        rows = [
            (float(r['env_frames']), float(r['score'])) for r in csv.DictReader(file)
        ]
    return Curve(*np.array(rows).T)


def load_reference(path: Path, suite: str, task: str) -> list[Bin]:
    """Bins of a file with suite, task, env_frames, seeds, mean, min, max."""
    with path.open(newline='') as file:
        return [
            Bin(*(float(row[k]) for k in ('env_frames', 'mean', 'min', 'max')))
            for row in csv.DictReader(file)
            if (row['suite'], row['task']) == (suite, task)
        ]


def bin_means(curve: Curve, edges: Sequence[float]) -> list[float]:
    """Mean score of the episodes that ended in each bin that the curve has reached."""
    means: list[float] = []
    left = 0.0
    for right in edges:
        inside = (left < curve.frames) & (curve.frames <= right)
        # Without a later episode the bin may have been cut off in the middle.
        if not inside.any() or curve.frames[-1] < right - (right - left) / 4:
            break
        means.append(float(curve.scores[inside].mean()))
        left = right
    return means


def compare(curves: Sequence[Curve], bins: Sequence[Bin], random: float) -> dict:
    """Figures over the bins that all curves have reached; {} if there is none."""
    means = [bin_means(curve, [b.edge for b in bins]) for curve in curves]
    reached = min(map(len, means), default=0)
    if not reached:
        return {}
    ours = np.mean([m[:reached] for m in means], axis=0)
    theirs = float(np.mean([b.mean for b in bins[:reached]]))
    last = bins[reached - 1]
    ratio = (float(ours.mean()) - random) / (theirs - random)
    floor = last.low - (last.high - last.low)
    return {
        'bins': reached,
        'of_bins': len(bins),
        'frames_compared': last.edge,
        'mean': round(float(ours.mean()), 2),
        'reference': round(theirs, 2),
        'ratio': round(ratio, 3),
        'last': round(float(ours[-1]), 2),
        'last_reference': last.mean,
        'last_floor': round(floor, 2),
        'passes': bool(ratio >= PASSING and ours[-1] >= floor),
        'ours': [round(float(x), 2) for x in ours],
    }


def summary(preset: str, task: str, state: Path, reference: Path | None) -> dict:
    paths = sorted((state / 'curves').glob(f'{preset}-{task}-*.csv'))
    curves = [load_curve(path) for path in paths]
    result: dict[str, Any] = {'task': task, 'preset': preset, 'seeds': len(curves)}
    if not curves:
        return result
    result |= {
        'frames': [int(curve.frames[-1]) for curve in curves],
        'episodes': [len(curve.frames) for curve in curves],
        'last_episodes': [round(float(c.scores[-10:].mean()), 2) for c in curves],
        **speed(preset, task, state),
    }
    known = PRESETS[preset]
    if reference is None or not known.reference:
        return result
    name = known.prefix + task.partition('_')[2]
    random = 0.0
    if known.subtract_random:
        random = result['random'] = round(random_score(preset, task, state), 2)
    return result | compare(
        curves, load_reference(reference, known.reference, name), random
    )


def speed(preset: str, task: str, state: Path) -> dict[str, Any]:
    """Median rates over all runs of the task, and how long they ran."""
    rates: dict[str, list[float]] = {'fps/train': [], 'fps/env': []}
    seconds = []
    for folder in sorted((state / 'runs').glob(f'{preset}-{task}-*/')):
        records = read_records(folder / 'metrics.jsonl')
        for name, values in rates.items():
            values += [
                r[name] for r in records if math.isfinite(r.get(name) or math.nan)
            ]
        seconds.append(round(_active(read_records(folder / 'events.jsonl'))))
    medians = {k: round(float(np.median(v)), 1) for k, v in rates.items() if v}
    return {**medians, 'seconds': seconds}


def _active(events: Sequence[dict]) -> float:
    """Seconds between starts and stops."""
    total, begin = 0.0, None
    for event in events:
        if event['event'] in ('start', 'resume'):
            begin = event['time']
        elif event['event'] == 'stop' and begin is not None:
            total, begin = total + event['time'] - begin, None
    return total


def random_score(preset: str, task: str, state: Path) -> float:
    """Mean score of random play in the same environment, measured once."""
    path = state / 'random.json'
    known = json.loads(path.read_text()) if path.exists() else {}
    key = f'{preset}-{task}'
    if key not in known:
        known[key] = float(np.mean(list(play_randomly(preset, task))))
        path.write_text(json.dumps(known))
    return known[key]


def play_randomly(preset: str, task: str) -> Iterator[float]:
    options, _ = config_lib.resolve(['--configs', *PRESETS[preset].configs])
    settings = options.env[task.partition('_')[0]]
    env = embodied.envs.make(task, seed=0, **settings)
    spaces = {k: v for k, v in env.act_space.items() if k != 'reset'}
    agent = RandomAgent(env.obs_space, spaces, seed=0)
    for _ in range(RANDOM_EPISODES):
        total, reset, over = 0.0, True, False
        while not over:
            _, acts, _ = agent.policy((), {'is_first': np.zeros(1)})
            obs = env.step({'reset': reset, **{k: v[0] for k, v in acts.items()}})
            total, reset, over = total + obs['reward'], False, obs['is_last']
        yield float(total)
    env.close()


# Carrying the state between machines


def pack(runs: Sequence[Run], state: Path, target: Path, limit: float) -> None:
    """Writes what fits into the limit, in the order of its worth, as files."""
    groups = [
        [*(state / 'curves').glob('*.csv'), *state.glob('random.json')],
        *sorted((list(_kept(state, run)) for run in runs), key=_size),
        *([path] for path in sorted((state / 'cache').glob('*')) if path.is_file()),
    ]
    content = io.BytesIO()
    left_out = 0
    with tarfile.open(fileobj=content, mode='w') as archive:
        for group in groups:
            if content.tell() + _size(group) > limit:
                left_out += 1
                continue
            for path in group:
                archive.add(path, path.relative_to(state))
    target.mkdir(parents=True, exist_ok=True)
    data = content.getbuffer()
    for number, start in enumerate(range(0, len(data), PART_BYTES)):
        part = target / f'state-{number:02}.part'
        part.write_bytes(data[start : start + PART_BYTES])
    print(f'Packed {len(data) / 1e6:.1f} MB into {target}; left out {left_out} groups.')


def unpack(source: Path, state: Path) -> None:
    parts = sorted(source.glob('state-*.part'))
    if not parts:
        raise SystemExit(f'There are no state-*.part files in {source}.')
    state.mkdir(parents=True, exist_ok=True)
    content = io.BytesIO(b''.join(part.read_bytes() for part in parts))
    with tarfile.open(fileobj=content) as archive:
        archive.extractall(state, filter='data')


def _kept(state: Path, run: Run) -> Iterator[Path]:
    """Files of a run without its replay and logs."""
    folder = state / 'runs' / run.name
    for path in sorted(folder.rglob('*')):
        if path.is_file() and path.relative_to(folder).parts[0] not in (
            'replay',
            'eval_replay',
            'logs',
            'lock',
        ):
            yield path


def _size(paths: Iterable[Path]) -> int:
    return sum(path.stat().st_size for path in paths)


if __name__ == '__main__':
    main()
