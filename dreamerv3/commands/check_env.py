"""`dreamer check-env`: reports what would break training with an environment."""

import argparse
import contextlib
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import elements

from embodied import envs
from embodied.core.errors import ConfigError, SpaceError
from embodied.core.step_keys import without_log
from embodied.envs.checking import checker
from embodied.envs.checking.faults import Finding

from .. import config as config_lib
from .. import vector_envs

__all__ = ['main']

FAULTY = 1  # exit code
MEMBERS = 4  # of vector environments of any size


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
    return FAULTY if _has_errors(report) else 0


def check_task(
    task: str, steps: int, seconds: float, flags: Sequence[str] = ()
) -> checker.Report:
    """The report on a task before the standard wrapping; flags: options to change."""
    config, _ = config_lib.resolve(flags)
    suite, _ = envs.registry.parse(task)
    settings: dict[str, Any] = dict(config.env.get(suite, {}))
    if vector_envs.takes_num(suite, settings):
        settings[vector_envs.NUM] = MEMBERS
    bare, resized = settings, True
    if suite in ('own', 'gym'):
        bare = {**settings, 'size': 0}  # Images are seen as they come.
        resized = bool(settings['size'])
    make = functools.partial(_make, task, bare)
    make(0).close()  # A task that does not exist is no fault of an environment.
    report = checker.check(make, steps, seconds, resized)
    if not _has_errors(report) and not config.random_agent:
        refusals = list(_refusals(task, settings, config))
        report = report._replace(findings=refusals + report.findings)
    return report


def _make(task: str, settings: dict[str, Any], seed: int) -> Any:
    return envs.registry.make_bare(task, seed, **settings)


def _has_errors(report: checker.Report) -> bool:
    return any(finding.severity == 'error' for finding in report.findings)


def _refusals(
    task: str, settings: dict[str, Any], config: elements.Config
) -> Iterator[Finding]:
    """What the agent itself says about the spaces that training gives it."""
    from ..agent.actions import Actions  # imports JAX
    from ..agent.networks.inputs import Inputs

    try:
        with contextlib.closing(envs.make(task, 0, **settings)) as env:
            Actions({k: v for k, v in env.act_space.items() if k != 'reset'})
            inputs = Inputs(without_log(env.obs_space))
        for part in ('enc', 'dec') if inputs.images else ():
            inputs.smallest_map(config.agent[part].mults)
    except (ConfigError, SpaceError) as error:
        yield Finding('error', str(error), 'Training would stop with this message.')


def _print(task: str, report: checker.Report) -> None:
    for finding in report.findings:
        print(f'{finding.severity}: {finding.what}')
        print(f'    {finding.fix}')
    for name, fact in report.facts.items():
        print(f'{name}: {fact}')
    if not report.findings:
        print(f'No faults found in {task}.')
