"""`dreamer plot LOGDIR...`: curves of runs as a figure, final scores as a table."""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from embodied.core.errors import ConfigError

from ..runs.folders import Run, check_roots, find_runs
from ..runs.options import read_options
from ..series.file_series import FileSeries
from ..series.records import SCORES, current_name
from ..series.reference import read_reference
from . import table
from .experiments import BANDS, STATISTICS, find_experiments
from .figure import Look, draw
from .final_score import DEFINITION

__all__ = ['main']

EXAMPLES = """\
examples:
  dreamer plot ~/logdir --out curves.pdf
  dreamer plot ~/logdir --reference scores.csv --suite dmc_proprio --table scores.md
  dreamer plot ~/logdir --metric train/loss/total --x time --band none
"""
SCORE, EVAL_SCORE = 'scores/score', 'scores/eval/score'
OFFLINE = 'offline'  # the script whose steps are updates
LABELS = {
    'step': 'Environment steps',
    'frames': 'Environment frames',
    'time': 'Hours of training',
    'updates': 'Updates',
    SCORE: 'Episode return',
    EVAL_SCORE: 'Evaluation return',
}


def main(argv: Sequence[str]) -> int:
    """Draws the runs below the given folders; returns the exit status."""
    args = _parser().parse_args(argv)
    references = read_reference(args.reference) if args.reference else []
    if args.suite:
        suites = sorted({curve.suite for curve in references})
        references = [curve for curve in references if curve.suite == args.suite]
        if not references:
            raise ConfigError(
                f"The reference has no suite '{args.suite}'. "
                f'It has: {", ".join(suites) or "none, give --reference"}.'
            )
    if args.bins is not None and args.bins < 1:
        raise ConfigError(f'--bins {args.bins} makes no curve. It must be at least 1.')
    in_frames = bool(references) and args.x == 'step'
    runs = find_runs(check_roots(args.logdir))
    metric = args.metric or _usual_metric(runs)
    experiments = find_experiments(runs, metric, args.x, in_frames)
    look = Look(
        statistic=args.statistic,
        band=args.band,
        bins=args.bins,
        x_label=LABELS['frames' if in_frames else _axis(args.x, runs)],
        y_label=LABELS.get(metric, metric),
        dpi=args.dpi,
    )
    draw(args.out, experiments, references if in_frames else [], look)
    content = table.rows(experiments, references if in_frames else [])
    if args.table:
        table.write(args.table, content)
    print(table.render(content, '.md'), end='')
    print(_definition(metric))
    print(f'Figure: {args.out}')
    return 0


def _usual_metric(runs: Sequence[Run]) -> str:
    """Scores of training episodes, unless all runs have those of evaluations alone."""
    names = [SCORE, EVAL_SCORE]
    found: set[str] = set()
    for run in runs:
        path = run.path / 'scores.jsonl'
        found |= FileSeries(path, np.inf, only=names).read().series.keys()
    return EVAL_SCORE if found == {EVAL_SCORE} else SCORE


def _axis(axis: str, runs: Sequence[Run]) -> str:
    scripts = {read_options(run.path / 'config.yaml').get('script') for run in runs}
    return 'updates' if axis == 'step' and scripts == {OFFLINE} else axis


def _definition(metric: str) -> str:
    if metric.startswith(SCORES):
        return DEFINITION
    return f"Values: mean of {metric} in the last tenth of a run's steps."


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        'dreamer plot',
        description='Draws curves of runs: a panel per task, a curve per experiment, '
        'a band over its runs.',
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add('logdir', nargs='+', help='folder of a run, or one that holds several')
    add('--out', type=Path, default=Path('curves.png'), help='.png, .pdf or .svg')
    add('--table', type=Path, help='also write the table, as .csv or .md')
    add(
        '--metric',
        type=current_name,
        help=f'{SCORE} by default, {EVAL_SCORE} of runs without training episodes',
    )
    add(
        '--x',
        choices=('step', 'time'),
        default='step',
        help='axis; time is of training',
    )
    add('--statistic', choices=STATISTICS, default='mean', help='over runs')
    add('--band', choices=BANDS, default='range', help='over runs')
    add('--bins', type=int, help='points of a curve; 60, or the bins of the reference')
    add('--dpi', type=int, default=200, help='of a .png')
    add(
        '--reference',
        help='CSV of published scores: suite,task,env_frames,seeds,mean,min,max',
    )
    add('--suite', help='of the reference, if it has several for a task')
    return parser
