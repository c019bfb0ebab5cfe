"""Options that come with an agent: which of them are taken, and what would run code.

Bundles and the runs of others bring options along. Those that name places, hosts and
services are left behind, so that loading one reads and contacts nothing else. A task
may name code, and so may the agent itself, `agent.module`: it runs only if the user
asks for it.
"""

import argparse
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import elements

from embodied.core.errors import ConfigError, TrustError
from embodied.core.ownership import is_private
from embodied.envs import registry
from embodied.envs.adapters import own

from .. import config as config_lib
from ..module_options import MODULE

__all__ = ['TRUST', 'Taken', 'for_others', 'parse', 'take', 'without_places']

TRUST = '--trust'
HELP = (
    'run code that the folder brings or names: a task `pickle:PATH` or '
    '`module:factory`, an agent module, a checkpoint with more than arrays in it'
)

OWN_TASK = 'own'  # an environment of the user's, which stays behind

# A compile cache is a place, too: compiled programs are code.
PLACES = re.compile(
    r'logdir|data|engine|trust|(ray|slurm|kubernetes)\..*|replay\.(dir|load_from)'
    r'|run\.(from_checkpoint|\w+_addr|encrypt)|jax\.(cache|coordinator_address)'
    r'|clock_addr|logger\.(outputs|wandb\..*)'
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
    source: str | os.PathLike  # as the user has named it

    def check_task(self) -> None:
        """Raises TrustError if making the environment would run untrusted code."""
        task = self.config.task
        if not task:
            raise ConfigError(
                f'The agent in {self.source} was trained on data, without a task to '
                'play. Name one: --task suite_name or --task module:factory.'
            )
        if self.trusted or not registry.names_code(task):
            return
        raise TrustError(
            f'{self.source} asks for the task {task!r}, which would run code that its '
            'author has chosen. Give --trust if you trust that author, or the task '
            'that you mean: --task suite_name or --task module:factory.'
        )


def take(
    flags: Sequence[str],
    came: elements.Config,
    is_own: bool,
    trust: bool,
    source: str | os.PathLike,
) -> Taken:
    """The options `came` with the source, changed by the user's flags.

    is_own: this user has made the agent here, so its options are the user's. Raises
    TrustError if making the agent would run untrusted code.
    """
    if not (trust or is_own):
        _check_module(flags, came, source)
    task = str(came.flat.get('task', ''))
    base = came if is_own or trust else without_places(came)
    unnamed = elements.Config({**base.flat, 'task': '', 'trust': False})
    config, _ = config_lib.resolve(flags, unnamed)
    if config.task:  # the user's own, as given by a flag or a preset
        return Taken(config, True, source)
    trusted = trust or (is_own and _is_kept(task))
    return Taken(config.update(task=task), trusted, source)


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


def for_others(config: elements.Config) -> elements.Config:
    """The options as they are given away: without places and files of this machine."""
    config = without_places(config)
    pickled = config.task.startswith(own.PICKLE)
    return config.update(task=OWN_TASK) if pickled else config


def _check_module(
    flags: Sequence[str], came: elements.Config, source: str | os.PathLike
) -> None:
    module = came.flat.get(MODULE, '')
    if module and MODULE not in config_lib.parse_flags(flags):
        raise TrustError(
            f'The agent in {source} is made by {module!r}, whose module would have to '
            'be imported, which runs the code in it. Give --trust if you trust its '
            'author (trust=True in Python), or name the module yourself: '
            f'--{MODULE} {module}'
        )


def _is_kept(task: str) -> bool:
    """Whether the factory of a task, if it is a file, is still the user's alone."""
    if not task.startswith(own.PICKLE):
        return True
    path = Path(task.removeprefix(own.PICKLE))
    return is_private(path.parent, path)
