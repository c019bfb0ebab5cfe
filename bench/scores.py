"""Scores: trains tasks with their presets and compares the curves with a reference.

    python bench/scores.py                              a built-in task, two minutes
    python bench/scores.py atari100k_pong dmc_walker_walk --seeds 2 --minutes 9 \\
        --at-once 4 --state ~/scores --reference scores.csv

The same command goes on where the last one stopped, until every run has its steps:
after --minutes all runs are told to stop, and save. `dmc_vision:dmc_walker_walk` names
another preset than the usual one; what follows `--` goes to `dreamer`. curves.py says
what is in the state; STATE/cache holds compiled programs. To look at a state only:

    python bench/scores.py --state ~/scores --minutes 0 --reference scores.csv \\
        --figures docs/results

For machines that keep nothing, --save-to and --load-from carry it in files of 15 MB:
the curves, then every checkpoint and compiled program that fits into --carry-mb. Replay
is too large to be carried: such a run fills it anew, which costs it some steps, and a
run whose checkpoint did not fit begins again. Its curve stays if it reached further.

Prints one JSON line per task. `ratio` is the mean over the bins of the reference that
were reached, relative to the reference over the same bins, for Atari after subtracting
random play. `last_floor` is min - (max - min) of the reference in the last such bin.
The scores are those of training episodes, with sampled actions. --figures draws them.
"""

import argparse
import io
import json
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

from curves import PRESETS, Run, draw_curves, export, runs_in, split, summary

PART_BYTES = 15_000_000
MEMORY_SHARE = 0.9  # of the accelerator, for all runs together
GRACE = 90.0  # seconds that runs get to save


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
        if args.minutes:
            train(runs, state, args, flags)
        elif not args.tasks:
            runs = runs_in(state)
        for run in runs:
            export(run, state)
        for preset, task in dict.fromkeys((run.preset, run.task) for run in runs):
            result = summary(preset, task, state, args.reference)
            print(json.dumps({'bench': 'scores', **result}), flush=True)
            if args.figures:
                draw_curves(preset, task, state, args.reference, args.figures)
        if args.save_to:
            pack(runs, state, args.save_to, args.carry_mb * 1e6)


def parse(argv: Sequence[str] | None) -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('tasks', nargs='*', help='toy_catch, or those of the state')
    parser.add_argument('--seeds', type=int, default=1)
    parser.add_argument('--first-seed', type=int, default=0)
    parser.add_argument('--minutes', type=float, default=2.0, help='of training')
    parser.add_argument(
        '--frames', type=float, help='of each run, in environment frames'
    )
    parser.add_argument('--at-once', type=int, default=1, help='runs at the same time')
    parser.add_argument('--script', choices=('parallel', 'train'), default='parallel')
    parser.add_argument('--size', help='size preset instead of the usual one')
    parser.add_argument('--state', type=Path)
    parser.add_argument('--reference', type=Path, help='CSV with curves to compare')
    parser.add_argument('--figures', type=Path, help='folder for one per task')
    parser.add_argument('--load-from', type=Path)
    parser.add_argument('--save-to', type=Path)
    parser.add_argument('--carry-mb', type=float, default=36.0)
    argv = list(sys.argv[1:] if argv is None else argv)
    cut = argv.index('--') if '--' in argv else len(argv)
    args = parser.parse_args(argv[:cut])
    if args.minutes and not args.tasks:
        args.tasks = ['toy_catch']
    return args, argv[cut + 1 :]


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
