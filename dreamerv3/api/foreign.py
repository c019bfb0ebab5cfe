"""Options that come with an agent: which of them are taken, and what would run code.

Bundles and the runs of others bring options along. Those that name places, hosts and
services are left behind, so that loading one reads and contacts nothing else. A task
may name code, which runs only if the user asks for it.
"""

import argparse
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import elements

from embodied.core.errors import TrustError
from embodied.core.ownership import is_private
from embodied.envs import registry
from embodied.envs.adapters import own

from .. import config as config_lib

__all__ = ['TRUST', 'Taken', 'parse', 'take', 'without_places']

TRUST = '--trust'
HELP = (
    'run code that the folder brings or names: a task `pickle:PATH` or '
    '`module:factory`, a checkpoint with more than arrays in it'
)

# A compile cache is a place, too: compiled programs are code.
PLACES = re.compile(
    r'logdir|engine|trust|(ray|slurm|kubernetes)\..*|replay\.(dir|load_from)'
    r'|run\.(from_checkpoint|\w+_addr)|jax\.(cache|coordinator_address)'
)


def parse(
    parser: argparse.ArgumentParser, argv: Sequence[str]
) -> tuple[argparse.Namespace, list[str]]:
    """Arguments, with `trust` among them, and the flags that are options of a run."""
    parser.add_argument(TRUST, action='store_true', help=HELP)
    # As all switches among the options, it may have a value.
    plain = [TRUST if x == f'{TRUST}=True' else x for x in argv]
    return parser.parse_known_args([x for x in plain if x != f'{TRUST}=False'])


class Taken(NamedTuple):
    """Options of an agent with those that the user has changed."""

    config: elements.Config
    trusted: bool  # whether code that the task names may run

    def check_task(self, source: str | os.PathLike) -> None:
        """Raises TrustError if making the environment would run untrusted code."""
        task = self.config.task
        if self.trusted or not registry.names_code(task):
            return
        raise TrustError(
            f'{source} asks for the task {task!r}, which would run code that its '
            'author has chosen. Give --trust if you trust that author, or the task '
            'that you mean: --task suite_name or --task module:factory.'
        )


def take(
    flags: Sequence[str], came: elements.Config, is_own: bool, trust: bool
) -> Taken:
    """The options `came`, changed by the user's flags.

    is_own: this user has made the agent here, so its options are the user's.
    """
    task = str(came.flat.get('task', ''))
    base = came if is_own or trust else without_places(came)
    unnamed = elements.Config({**base.flat, 'task': '', 'trust': False})
    config, _ = config_lib.resolve(flags, unnamed)
    if config.task:  # the user's own, as given by a flag or a preset
        return Taken(config, True)
    trusted = trust or (is_own and _is_kept(task))
    return Taken(config.update(task=task), trusted)


def without_places(config: elements.Config) -> elements.Config:
    """The options with the defaults of this machine where they name places, unless
    they name none."""
    defaults = config_lib.load_presets()['defaults']
    return elements.Config(
        {
            name: defaults.get(name, value)
            if PLACES.fullmatch(name) and value != ''
            else value
            for name, value in config.flat.items()
        }
    )


def _is_kept(task: str) -> bool:
    """Whether the factory of a task, if it is a file, is still the user's alone."""
    if not task.startswith(own.PICKLE):
        return True
    path = Path(task.removeprefix(own.PICKLE))
    return is_private(path.parent, path)
