"""Engines by option: where the roles of `dreamer parallel` are started."""

from pathlib import Path

import elements

from embodied.core.errors import ConfigError
from embodied.run.parallel.engine import Engine

__all__ = ['check', 'make_engine']

LOCAL, RAY = 'local', 'ray'


def check(config: elements.Config) -> None:
    """Refuses an engine for a command that starts no roles."""
    if config.engine != LOCAL and config.script != 'parallel':
        raise ConfigError(
            f'--engine {config.engine} starts the roles of `dreamer parallel`; '
            f'{config.script} has none. Leave it away.'
        )


def make_engine(config: elements.Config) -> Engine | None:
    """The engine that the launcher of a distributed run uses; None for this machine."""
    if config.engine == LOCAL:
        return None
    from embodied.run.engines.ray_engine import RayEngine

    folders = [Path(config.logdir)]
    if config.replay.dir:
        folders.append(Path(config.replay.dir).expanduser())
    return RayEngine(config.ray, folders)
