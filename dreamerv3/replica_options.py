"""Replica options: folders and seeds of jobs that train one agent together."""

import re
from pathlib import Path

import elements

from embodied.core.errors import ConfigError

__all__ = ['check_replicas', 'number', 'replica_folder']

SCRIPTS = ('parallel', 'parallel_agent')
ADDRESS = re.compile(r'.+:\d+')


def check_replicas(config: elements.Config) -> None:
    """Refuses options with which the replicas could not find each other."""
    count = config.replicas
    if count == 1:
        return
    if count < 1:
        raise ConfigError(f'replicas={count} must be at least 1.')
    if config.script not in SCRIPTS:
        raise ConfigError(
            f'replicas={count}: only {" and ".join(SCRIPTS)} have replicas, each with '
            f'other roles of its own. Leave it at 1 for {config.script}.'
        )
    if not 0 <= config.replica < count:
        raise ConfigError(
            f'replica={config.replica} must be between 0 and {count - 1} (replicas='
            f'{count}).'
        )
    if '{timestamp}' in config.logdir:
        raise ConfigError('Replicas share a folder: give them all the same --logdir.')
    address = config.jax.coordinator_address
    if not ADDRESS.fullmatch(address):
        raise ConfigError(
            f"jax.coordinator_address='{address}' must be host:port, the same for all "
            f'{count} replicas: a free port of the machine of replica 0.'
        )


def number(config: elements.Config) -> int:
    """That of this replica; of a run without others it is 0."""
    return config.replica if config.get('replicas', 1) > 1 else 0


def replica_folder(logdir: str, config: elements.Config) -> str:
    """The folder of the run itself for replica 0, one in it for each other one."""
    replica = number(config)
    return str(Path(logdir) / f'replica{replica}') if replica else logdir
