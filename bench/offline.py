"""Offline: what an agent learns from the replay of a demo run, without playing.

    python bench/offline.py                        17 minutes on two busy cores
    python bench/offline.py --updates 6000 --seed 1 --keep ~/logdir/offline

The demo records; `dreamer offline` trains a new agent on its replay; `dreamer eval`
plays with both. One JSON line on stdout: `kept` is (score - random) / (recorder -
random), the share of the way from random play that the recording agent came. Output of
the commands goes to stderr; flags after `--` are added to those of the offline run.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dreamerv3 import config as config_lib
from dreamerv3.commands import demo
from embodied.logging import read_records

PRESETS = ('--configs', 'tiny', 'demo')
UPDATES = 6000  # as many as the demo makes at most
EPISODES = 100
NEEDED = 0.8


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--updates', type=int, default=UPDATES)
    parser.add_argument('--episodes', type=int, default=EPISODES, help='per evaluation')
    parser.add_argument('--seed', type=int, default=0)
    parser.add_argument('--keep', type=Path, help='folder for the runs')
    argv = list(sys.argv[1:] if argv is None else argv)
    cut = argv.index('--') if '--' in argv else len(argv)
    args, more = parser.parse_args(argv[:cut]), argv[cut + 1 :]
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.keep or Path(temporary)
        line = {'bench': 'offline', 'seed': args.seed, 'flags': more}
        print(json.dumps({**line, **measure(folder, args, more)}), flush=True)


def measure(
    folder: Path, args: argparse.Namespace, more: Sequence[str]
) -> dict[str, Any]:
    recorded, trained = folder / 'recorded', folder / 'offline'
    seed = f'--seed={args.seed}'
    recording = seconds('parallel', *PRESETS, seed, f'--logdir={recorded}')
    training = seconds(
        *('offline', *PRESETS, seed, f'--logdir={trained}', f'--data={recorded}'),
        *(f'--run.updates={args.updates}', '--run.eval_envs=0', *more),
    )
    recorder = evaluate(recorded, args.episodes)
    learner = evaluate(trained, args.episodes)
    levels = demo.levels_of(config_lib.resolve(PRESETS)[0])
    random = levels[demo.RANDOM]
    kept = (learner['mean'] - random) / (recorder['mean'] - random)
    last = read_records(trained / 'metrics.jsonl')[-1]
    return {
        'score': round(learner['mean'], 3),
        'recorder': round(recorder['mean'], 3),
        'random': random,
        'optimum': levels[demo.OPTIMUM],
        'kept': round(kept, 3),
        'enough': kept >= NEEDED,
        'episodes': args.episodes,
        'steps': int(last['replay/steps']),
        'updates': int(last['train/updates']),
        'seconds_recording': round(recording),
        'seconds_training': round(training),
    }


def evaluate(logdir: Path, episodes: int) -> dict[str, Any]:
    run('eval', str(logdir), f'--episodes={episodes}')
    return read_records(logdir / 'eval.jsonl')[-1]


def seconds(*argv: str) -> float:
    begin = time.monotonic()
    run(*argv)
    return time.monotonic() - begin


def run(*argv: str) -> None:
    command = [sys.executable, '-m', 'dreamerv3', *argv]
    subprocess.run(command, stdout=sys.stderr, check=True)


if __name__ == '__main__':
    main()
