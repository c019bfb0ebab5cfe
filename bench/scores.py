"""Scores: trains tasks with presets, options and seeds, and compares the curves.

    python bench/scores.py                              a built-in task, two minutes
    python bench/scores.py dmc_2023:dmc_walker_walk dmc_2023:dmc_cheetah_run \\
        --arm plain: --arm 'laprop: --agent.opt.kind laprop --agent.opt.eps 1e-20' \\
        --seeds 3 --at-once 6 --minutes 27 --state ~/scores
    python bench/scores.py --gate --at-once 4 --minutes 10 --state ~/gate

A run is a preset (`PRESET:task`; without one that of the task's suite), a task, an arm
(a name for options that it adds to the preset) and a seed. The same command goes on
where the last one stopped, until every run has its frames: after --minutes all runs
are told to stop, and save. What follows `--` goes to every `dreamer` command. On a GPU
several runs at once are faster with its MPS daemon. To look at a state only:

    python bench/scores.py --state ~/scores --minutes 0 --figures ~/figures

For machines that keep nothing, --save-to and --load-from carry the state in files of
15 MB, at most --carry-mb in all: curves, checkpoints, replay, compiled programs. Replay
then leaves the latents behind, which are computed again as they are trained on.

Prints a JSON line per preset, arm and task, and a table: the interquartile mean over
the seeds of the training episodes that ended in --window (without one, the last quarter
of the frames), with a bootstrap interval of 95 %. `ratio` is the mean over the bins of
the reference that were reached, relative to the reference, for Atari after subtracting
random play. Curves of DMC from vectors are compared at half the reference's label:
docs/decisions/007. --gate is the regression gate: it trains with the settings of
docs/results/same_settings.csv, and fails with exit status 1.
"""

import argparse
import json
import math
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from scoring import gate, table
from scoring.arms import Run, parse_arms, runs_of
from scoring.carry import pack, unpack
from scoring.curves import export, load_curves, runs_in, summary
from scoring.drawing import draw_task
from scoring.training import Plan, train

RESULTS = Path(__file__).parents[1] / 'docs' / 'results'
PUBLISHED = RESULTS / 'published.csv'
SAME_SETTINGS = RESULTS / 'same_settings.csv'


def main(argv: Sequence[str] | None = None) -> int:
    args, flags = parse(argv)
    with tempfile.TemporaryDirectory() as temporary:
        state = (args.state or Path(temporary)).expanduser()
        if args.load_from:
            unpack(args.load_from, state)
        arms = parse_arms(args.arm)
        seeds = range(args.first_seed, args.first_seed + args.seeds)
        chosen = list(gate.GATE_RUNS if args.gate else runs_of(args.tasks, arms, seeds))
        if args.minutes:
            remember(arms, state)
            sizes = (args.minutes, args.frames, args.at_once, args.script, args.size)
            carried = bool(args.save_to or args.load_from)
            train(chosen, Plan(state, arms, *sizes, carried, flags))
        runs = chosen or runs_in(state)
        for run in runs:
            export(run, state)
        report(runs, state, args)
        if args.save_to:
            pack(runs, state, args.save_to, args.carry_mb * 1e6)
        return judge(state) if args.gate else 0


def parse(argv: Sequence[str] | None) -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('tasks', nargs='*', help='toy_catch, or those of the state')
    parser.add_argument('--arm', action='append', default=[], help="'NAME: --flag ...'")
    parser.add_argument('--gate', action='store_true', help='regression gate')
    parser.add_argument('--seeds', type=int, default=1)
    parser.add_argument('--first-seed', type=int, default=0)
    parser.add_argument('--minutes', type=float, default=2.0, help='of training')
    parser.add_argument('--frames', type=float, help='of each run')
    parser.add_argument('--window', type=float, nargs=2, help='frames of the table')
    parser.add_argument('--at-once', type=int, default=1, help='runs at the same time')
    parser.add_argument('--script', choices=('parallel', 'train'), default='parallel')
    parser.add_argument('--size', help='size preset instead of the usual one')
    parser.add_argument('--state', type=Path)
    parser.add_argument('--reference', type=Path, default=PUBLISHED)
    parser.add_argument('--figures', type=Path, help='folder for one per task')
    parser.add_argument('--load-from', type=Path)
    parser.add_argument('--save-to', type=Path)
    parser.add_argument('--carry-mb', type=float, default=36.0)
    argv = list(sys.argv[1:] if argv is None else argv)
    cut = argv.index('--') if '--' in argv else len(argv)
    args = parser.parse_args(argv[:cut])
    if args.gate and (args.tasks or args.arm):
        parser.error('--gate has tasks and options of its own')
    if args.minutes and not args.tasks:
        args.tasks = ['toy_catch']
    return args, argv[cut + 1 :]


def remember(arms: dict[str, list[str]], state: Path) -> None:
    """Keeps the options of the arms, and refuses others under the same name."""
    path = state / 'arms.json'
    known = json.loads(path.read_text()) if path.exists() else {}
    for name, flags in arms.items():
        if known.setdefault(name, flags) != flags:
            raise SystemExit(
                f"The arm '{name}' of {state} has the options {known[name]}, not "
                f'{flags}. Give the other options another name.'
            )
    state.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(known))


def report(runs: Sequence[Run], state: Path, args: argparse.Namespace) -> None:
    """JSON lines, the table, and figures."""
    groups = list({run.group: run for run in runs}.values())
    for group in groups:
        result = summary(group, state, args.reference)
        print(json.dumps({'bench': 'scores', **result}), flush=True)
    window = tuple(args.window) if args.window else None
    rows = [table.scores_of(x, state, args.reference, window) for x in groups]
    print(table.markdown(row for row in rows if row))
    if args.figures:
        for task in dict.fromkeys(group.task for group in groups):
            same = [group for group in groups if group.task == task]
            draw_task(same, state, args.reference, args.figures)


def judge(state: Path) -> int:
    """Prints the rows of the gate; exit status."""
    groups = {run.task: run for run in gate.GATE_RUNS}
    curves = {task: load_curves(run, state) for task, run in groups.items()}
    rows = gate.judge(curves, SAME_SETTINGS)
    for row in rows:
        ours = None if math.isnan(row.ours) else row.ours
        line = {'bench': 'gate', **row._asdict(), 'ours': ours}
        print(json.dumps(line), flush=True)
    return 0 if rows and all(row.passes for row in rows) else 1


if __name__ == '__main__':
    sys.exit(main())
