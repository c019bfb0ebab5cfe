"""Replay of another checkout and of this one, taking turns many times a second.

    python bench/replay_pairs.py CHECKOUT [--starts 8] [--rounds 100] [--steps 40000]
        [--dir /dev/shm]

Each start fills one replay per checkout, in a process of its own; the two take turns.
So neither the noise of a machine decides, nor the memory that one process gets.

Prints a JSON line per figure: `ratio` is the rate of this checkout over that of the
other one, the median over starts of the medians over rounds; `cpu_ratio` is the same in
CPU time of all threads. `interval` holds the ratio with 95 % certainty, as drawing
starts again finds. `ok` says whether the ratio is at least `bar`.
"""

import argparse
import contextlib
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from embodied.replay import Replay

HERE = Path(__file__).resolve()
BATCH, LENGTH, STREAMS = 16, 65, 16
FRAME = (64, 64, 3)
BURST = 20  # batches per turn, about 20 ms
BAR = 0.98
DRAWS = 2000
FIGURES = ('sample', 'insert_and_sample')

Rates = tuple[float, float]  # by the clock, in CPU time


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or '').splitlines()[0])
    parser.add_argument('checkout', type=Path, help='the version to compare with')
    parser.add_argument('--starts', type=int, default=8, help='pairs of processes')
    parser.add_argument('--rounds', type=int, default=100, help='turns of each pair')
    parser.add_argument('--steps', type=int, default=40_000, help='in each replay')
    parser.add_argument(
        '--dir', help='where to put files; /dev/shm spares the noise of a disk'
    )
    parser.add_argument('--serve', type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        serve(args.serve, args.steps)
        return
    if not (args.checkout / 'embodied' / 'replay').is_dir():
        parser.error(f'{args.checkout} is no checkout: it has no embodied/replay.')
    checkouts = args.checkout.resolve(), HERE.parent.parent
    found: dict[str, list[Rates]] = {name: [] for name in FIGURES}
    for _ in range(args.starts):
        for name, ratios in compare(checkouts, args).items():
            found[name].append(ratios)
    for name, ratios in found.items():
        report(name, ratios)


def compare(checkouts: tuple[Path, Path], args: argparse.Namespace) -> dict[str, Rates]:
    """Ratios of one start by figure: medians over its rounds."""
    ratios: dict[str, list[Rates]] = {name: [] for name in FIGURES}
    with contextlib.ExitStack() as stack:
        pair = [stack.enter_context(started(path, args)) for path in checkouts]
        for number in range(args.rounds):
            for name in FIGURES:
                # The order alternates, so that neither side always comes second.
                order = (0, 1) if number % 2 else (1, 0)
                rates = {side: ask(pair[side], name) for side in order}
                old, new = rates[0], rates[1]
                ratios[name].append((new[0] / old[0], new[1] / old[1]))
    clock = lambda found: statistics.median(x[0] for x in found)
    cpu = lambda found: statistics.median(x[1] for x in found)
    return {name: (clock(found), cpu(found)) for name, found in ratios.items()}


@contextlib.contextmanager
def started(checkout: Path, args: argparse.Namespace) -> Iterator[subprocess.Popen]:
    """A process with a filled replay of the checkout, ready for its first turn."""
    with tempfile.TemporaryDirectory(prefix='bench-replay-', dir=args.dir) as folder:
        process = subprocess.Popen(
            [sys.executable, str(HERE), str(checkout)]
            + ['--serve', folder, '--steps', str(args.steps)],
            env={**os.environ, 'PYTHONPATH': str(checkout)},
            cwd=checkout,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        with process:
            home = json.loads(answer(process))
            assert Path(home).is_relative_to(checkout), (home, checkout)
            yield process
            assert process.stdin is not None
            process.stdin.close()


def ask(process: subprocess.Popen, figure: str) -> Rates:
    assert process.stdin is not None
    process.stdin.write(f'{figure}\n')
    process.stdin.flush()
    clock, cpu = json.loads(answer(process))
    return clock, cpu


def answer(process: subprocess.Popen) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise SystemExit(f'A bench process ended with {process.wait()}.')
    return line


def report(name: str, ratios: list[Rates]) -> None:
    clock = [x[0] for x in ratios]
    rng = random.Random(0)
    draws = sorted(
        statistics.median(rng.choices(clock, k=len(clock))) for _ in range(DRAWS)
    )
    ratio = statistics.median(clock)
    line = {
        'bench': f'replay_pairs/{name}',
        'ratio': round(ratio, 4),
        'interval': [round(draws[int(q * DRAWS)], 4) for q in (0.025, 0.975)],
        'cpu_ratio': round(statistics.median(x[1] for x in ratios), 4),
        'bar': BAR,
        'ok': ratio >= BAR,
    }
    print(json.dumps(line), flush=True)


def serve(folder: Path, steps: int) -> None:
    """Fills a replay and answers each name of a figure with its rates."""
    replay = Replay(LENGTH, capacity=steps, directory=folder, sync_every=0)
    block = image_steps()
    insert = lambda: replay.add_batch(block, range(STREAMS))
    for _ in range(2 * steps // STREAMS):  # Eviction is part of a steady state.
        insert()
    target = replay.sample(BATCH)
    sample = lambda: replay.sample(BATCH, out=target)
    if hasattr(replay, 'finish_checks'):
        replay.finish_checks()

    def both() -> None:
        insert()
        sample()

    calls: dict[str, Callable[[], object]] = dict(
        zip(FIGURES, (sample, both), strict=True)
    )
    for _ in range(BURST):
        sample()
    print(json.dumps(sys.modules['embodied'].__file__), flush=True)
    for line in sys.stdin:
        print(json.dumps(rates(calls[line.strip()])), flush=True)
    replay.close()


def rates(function: Callable[[], object]) -> Rates:
    """Calls per second by the clock and in CPU time."""
    start = time.perf_counter(), time.process_time()
    for _ in range(BURST):
        function()
    clock, cpu = time.perf_counter() - start[0], time.process_time() - start[1]
    return BURST / clock, BURST / cpu


def image_steps() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        'image': rng.integers(0, 256, (STREAMS, *FRAME), np.uint8),
        'reward': np.zeros(STREAMS, np.float32),
        'action': np.zeros(STREAMS, np.int32),
        'is_first': np.zeros(STREAMS, bool),
        'is_last': np.zeros(STREAMS, bool),
        'is_terminal': np.zeros(STREAMS, bool),
    }


if __name__ == '__main__':
    main()
