"""Learning: what the agent reaches on small tasks in a given time, on this machine.

    python bench/learning.py                       all tasks, about 110 minutes
    python bench/learning.py catch --minutes 5
    python bench/learning.py cartpole pendulum --seed 1 --keep ~/logdir/learning
    python bench/learning.py catch --minutes 5 --script parallel
    python bench/learning.py reach --minutes 10 -- --agent.policy_grad backprop

One JSON line per figure on stdout. Training and evaluation are plain `dreamer`
commands, to which the flags after `--` are added; their output goes to stderr.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dreamerv3 import config as config_lib
from dreamerv3.commands import demo
from embodied.logging import read_records

EPISODES = 20  # per evaluation
RECENT = 100  # training episodes behind a point of a learning curve
CATCH_MINUTES = (5, 20)  # points of the learning curve to report


class Task(NamedTuple):
    flags: tuple[str, ...]
    minutes: float


TASKS = {
    'catch': Task(('--configs', 'tiny', 'demo'), 20),
    'reach': Task(('--configs', 'tiny', 'reach'), 30),
    'cartpole': Task(('--configs', 'tiny', 'cartpole'), 30),
    'pendulum': Task(('--configs', 'tiny', 'pendulum'), 30),
}


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('tasks', nargs='*', default=[], metavar='|'.join(TASKS))
    parser.add_argument('--minutes', type=float, help='training time of each task')
    parser.add_argument('--script', choices=('train', 'parallel'), default='train')
    parser.add_argument('--seed', type=int, default=0)
    parser.add_argument('--keep', type=Path, help='folder for the runs')
    argv = list(sys.argv[1:] if argv is None else argv)
    cut = argv.index('--') if '--' in argv else len(argv)
    args, more = parser.parse_args(argv[:cut]), argv[cut + 1 :]
    unknown = set(args.tasks) - set(TASKS)
    if unknown:
        parser.error(f'unknown tasks {sorted(unknown)}, there are {sorted(TASKS)}')
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.keep or Path(temporary)
        for name in args.tasks or TASKS:
            task = TASKS[name]
            minutes = args.minutes or task.minutes
            logdir = folder / name
            flags = (*task.flags, f'--seed={args.seed}', f'--logdir={logdir}', *more)
            figures = catch_figures if name == 'catch' else eval_figures
            for figure in figures(logdir, args.script, flags, minutes):
                run_of = {'task': name, 'script': args.script, 'seed': args.seed}
                run_of |= {'flags': more} if more else {}
                line = {'bench': 'learning', **run_of, **figure}
                print(json.dumps(line), flush=True)


def catch_figures(
    logdir: Path, script: str, flags: Sequence[str], minutes: float
) -> Iterator[dict[str, Any]]:
    """Share of the gap between random play and optimum that training closes."""
    train(script, flags, minutes)
    levels = demo.levels_of(config_lib.resolve(flags)[0])
    episodes = read_records(logdir / 'scores.jsonl')
    begin = read_records(logdir / 'events.jsonl')[0]['time']
    for limit in sorted({*(m for m in CATCH_MINUTES if m < minutes), minutes}):
        before = [e for e in episodes if e['time'] <= begin + 60 * limit][-RECENT:]
        score = float(np.mean([e['score'] for e in before]))
        yield {
            'minutes': limit,
            'score': round(score, 3),
            'random': levels[demo.RANDOM],
            'optimum': levels[demo.OPTIMUM],
            'gap_closed': round(demo.gap_closed(score, levels), 3),
            'steps': before[-1]['step'],
            **speed(logdir),
        }


def eval_figures(
    logdir: Path, script: str, flags: Sequence[str], minutes: float
) -> Iterator[dict[str, Any]]:
    """Mean score of evaluation episodes after training, beside random play."""
    chance = logdir.with_name(f'{logdir.name}-random')
    evaluation = ('--run.envs=4', f'--run.eval_eps={EPISODES // 4}')
    run('train', *flags, '--random_agent=True', f'--logdir={chance}', '--run.steps=0')
    random = evaluate(chance, *flags, *evaluation, '--random_agent=True')
    train(script, flags, minutes)
    scores = evaluate(logdir, *flags, *evaluation)
    yield {
        'minutes': minutes,
        'score': round(float(np.mean(scores)), 1),
        'score_std': round(float(np.std(scores)), 1),
        'random': round(float(np.mean(random)), 1),
        'random_std': round(float(np.std(random)), 1),
        'episodes': len(scores),
        'steps': read_records(logdir / 'metrics.jsonl')[-1]['step'],
        **speed(logdir),
    }


def train(script: str, flags: Sequence[str], minutes: float) -> None:
    run(script, *flags, f'--run.duration={60 * minutes}')


def evaluate(logdir: Path, *flags: str) -> list[float]:
    """Scores of evaluation episodes of the newest agent in the folder."""
    run('eval_only', *flags, f'--logdir={logdir}')
    return [e['score'] for e in read_records(logdir / 'scores.jsonl') if e['eval']]


def speed(logdir: Path) -> dict[str, float]:
    records = read_records(logdir / 'metrics.jsonl')
    rates = [record['fps/train'] for record in records if 'fps/train' in record]
    return {'updates_per_second': round(float(np.median(rates)), 2)}


def run(*argv: str) -> None:
    command = [sys.executable, '-m', 'dreamerv3', *argv]
    subprocess.run(command, stdout=sys.stderr, check=True)


if __name__ == '__main__':
    main()
