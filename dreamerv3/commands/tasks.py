"""`dreamer tasks`: lists suites, tasks, what they need and whether it is there."""

import textwrap
from collections.abc import Sequence

from embodied import envs
from embodied.core.errors import ConfigError
from embodied.envs import extras
from embodied.envs.registry import label

__all__ = ['main']

HELP = """\
usage: dreamer tasks [SUITE ...]

Lists the tasks of all suites, or of some. What is missing is installed by the extra
that is named.
"""
WIDTH = 88


def main(argv: Sequence[str]) -> int:
    if set(argv) & {'-h', '--help'}:
        print(HELP, end='')
        return 0
    suites = envs.tasks()
    known = [suite.suite for suite in suites]
    for name in argv:
        if name not in known:
            raise ConfigError(f'There is no suite {name!r}, only {", ".join(known)}.')
    for suite in suites:
        if not argv or suite.suite in argv:
            _print(suite)
    return 0


def _print(suite: envs.Suite) -> None:
    print(f'{suite.suite}: {_state(suite)}')
    names = [label(suite.suite, name) for name in suite.names]
    # Descriptions of endless families contain spaces, which may break.
    for line in textwrap.wrap('  '.join(names), WIDTH - 2, break_on_hyphens=False):
        print(f'  {line}')


def _state(suite: envs.Suite) -> str:
    if suite.installed:
        return f'installed, by the extra {suite.extra}' if suite.extra else 'built in'
    return f'not installed. {extras.advice(suite.extra)}'
