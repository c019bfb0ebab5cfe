"""`dreamer check-env`: reports what would break training with an environment."""

import argparse
import functools
from collections.abc import Sequence
from typing import Any

from embodied import envs
from embodied.envs.checking import checker

from .. import config as config_lib

__all__ = ['main']

FAULTY = 1  # exit code


def main(argv: Sequence[str]) -> int:
    """0 without errors, 1 with; warnings do not count."""
    parser = argparse.ArgumentParser(
        prog='dreamer check-env',
        description='Plays an environment and reports what would break training. '
        'Options of environments are given as for training: --env.own.bound 1.0.',
    )
    parser.add_argument('task', help='a task, gym:<id> or <module>:<factory>')
    parser.add_argument(
        '--steps', type=int, default=2000, help='of random play at most'
    )
    parser.add_argument('--seconds', type=float, default=20.0, help='of play at most')
    args, flags = parser.parse_known_args(argv)
    report = check_task(args.task, args.steps, args.seconds, flags)
    _print(args.task, report)
    return FAULTY if any(f.severity == 'error' for f in report.findings) else 0


def check_task(
    task: str, steps: int, seconds: float, flags: Sequence[str] = ()
) -> checker.Report:
    """The report on a task before the standard wrapping; flags: options to change."""
    suite, _ = envs.registry.parse(task)
    settings: dict[str, Any] = dict(config_lib.resolve(flags)[0].env.get(suite, {}))
    if suite in ('own', 'gym'):
        settings['size'] = 0  # Images are seen as they come.
    make = functools.partial(_make, task, settings)
    make(0).close()  # A task that does not exist is no fault of an environment.
    return checker.check(make, steps, seconds)


def _make(task: str, settings: dict[str, Any], seed: int) -> Any:
    return envs.registry.make_bare(task, seed, **settings)


def _print(task: str, report: checker.Report) -> None:
    for finding in report.findings:
        print(f'{finding.severity}: {finding.what}')
        print(f'    {finding.fix}')
    for name, fact in report.facts.items():
        print(f'{name}: {fact}')
    if not report.findings:
        print(f'No faults found in {task}.')
