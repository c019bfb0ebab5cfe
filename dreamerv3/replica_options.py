"""Replica options: folders and seeds of jobs that train one agent together."""

import re
from pathlib import Path

import elements

from embodied import clock
from embodied.core.errors import ConfigError

__all__ = ['check_replicas', 'connect_clocks', 'number', 'replica_folder']

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
    if config.random_agent or config.clock_addr:
        _check_address('clock_addr', config.clock_addr, count)
    if not config.random_agent:
        _check_address('jax.coordinator_address', config.jax.coordinator_address, count)


def connect_clocks(config: elements.Config) -> None:
    """Makes the clocks of this process agree with the clocks of the other replicas."""
    if config.clock_addr:
        clock.setup(
            is_server=config.replica == 0,
            replica=config.replica,
            replicas=config.replicas,
            port=config.clock_port,
            addr=config.clock_addr,
            keys=_run_folder(config) / 'keys',
        )


def _check_address(option: str, address: str, count: int) -> None:
    if not ADDRESS.fullmatch(address):
        raise ConfigError(
            f"{option}='{address}' must be host:port, the same for all {count} "
            'replicas: a free port of the machine of replica 0.'
        )


def _run_folder(config: elements.Config) -> Path:
    """The folder of the run, in which that of this replica lies."""
    folder = Path(config.logdir)
    return folder.parent if number(config) else folder


def number(config: elements.Config) -> int:
    """Number of this replica; 0 without other replicas."""
    return config.replica if config.get('replicas', 1) > 1 else 0


def replica_folder(logdir: str, config: elements.Config) -> str:
    """The folder of the run for replica 0, a folder in it for each other replica."""
    replica = number(config)
    return str(Path(logdir) / f'replica{replica}') if replica else logdir
