"""`dreamer manifests`: writes the Kubernetes manifests of a run."""

import functools
import os
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import elements
from ruamel.yaml import YAML

from embodied.core.errors import ConfigError
from embodied.run.parallel.engines.kubernetes import (
    DISK,
    SERVERS,
    KubernetesOptions,
    Pod,
    manifests,
    secret,
)
from embodied.run.parallel.settings import ParallelSettings
from embodied.transport import keys

from .. import config as config_lib
from ..loops import loop_args

__all__ = ['main', 'plan']

USAGE = """\
usage: dreamer manifests FOLDER [--configs PRESET ...] [--OPTION VALUE ...]

Writes FOLDER/run.yaml, the roles and their services, and FOLDER/keys.yaml, the keys of
the run. The options are those of `dreamer parallel`, and kubernetes.*; --logdir is a
folder below kubernetes.mount. Then: kubectl apply -f FOLDER
"""
NAME = re.compile(r'[a-z]([-a-z0-9]{0,40}[a-z0-9])?')
ADDRESSES = {'agent': 'actor_addr', 'replay': 'replay_addr', 'logger': 'logger_addr'}


def main(argv: Sequence[str]) -> int:
    if not argv or argv[0].startswith('-'):
        print(USAGE, end='')
        return 0 if list(argv) in (['--help'], ['-h']) else 2
    config, _ = config_lib.resolve(argv[1:])
    options = KubernetesOptions(**config.kubernetes)
    _check(config, options)
    folder = Path(argv[0])
    folder.mkdir(parents=True, exist_ok=True)
    pods = plan(config, options)
    _write(folder / 'run.yaml', manifests(pods, options, config.run.grace))
    with tempfile.TemporaryDirectory() as home:
        pair = keys.create(Path(home) / 'keys')
    _write(folder / 'keys.yaml', [secret(pair, options)], private=True)
    print(f'Wrote {folder}/run.yaml and {folder}/keys.yaml: kubectl apply -f {folder}')
    return 0


def plan(config: elements.Config, options: KubernetesOptions) -> list[Pod]:
    """What each role runs, and what it needs."""
    if not config.run.envs_per_worker:
        per_worker = max(1, int(options.env_cpus))
        config = config.update({'run.envs_per_worker': per_worker})
    if options.replay_gb:
        config = config.update({'replay.dir': DISK})
    small = options.env_cpus, options.env_gb
    workers = ParallelSettings.read(loop_args(config)).workers
    args = functools.partial(_args, config, options)
    return [
        Pod('agent', args('agent'), options.cpus, options.gb, options.gpus),
        Pod(
            'replay',
            args('replay'),
            options.env_cpus,
            options.gb,
            disk_gb=options.replay_gb,
        ),
        Pod('logger', args('logger'), *small),
        Pod('env', args('env'), *small, copies=len(workers)),
    ]


def _args(config: elements.Config, options: KubernetesOptions, role: str) -> list[str]:
    """Arguments of `dreamer`; a server listens everywhere, others know its service."""
    flags = [f'parallel_{role}', *config_lib.flags(config.update(script='train'))]
    for server, port in SERVERS.items():
        host = '0.0.0.0' if server == role else f'{options.name}-{server}'
        flags.append(f'--run.{ADDRESSES[server]}={host}:{port}')
    return flags


def _check(config: elements.Config, options: KubernetesOptions) -> None:
    if not NAME.fullmatch(options.name):
        raise ConfigError(
            f"kubernetes.name='{options.name}' must be small letters, digits and "
            'dashes, and begin with a letter.'
        )
    if not options.image or not options.claim:
        raise ConfigError(
            'Give the image of the containers as --kubernetes.image and the volume '
            'claim that they share as --kubernetes.claim.'
        )
    if options.replay_gb and config.replay.dir:
        raise ConfigError(
            f"replay.dir='{config.replay.dir}' is elsewhere than the volume that "
            f'kubernetes.replay_gb={options.replay_gb:g} asks for. Give one of them.'
        )
    below = Path(options.mount) in Path(config.logdir).parents
    if not below or '{timestamp}' in config.logdir:
        raise ConfigError(
            f"logdir='{config.logdir}' must be a fixed folder below kubernetes.mount="
            f"'{options.mount}', where the claim is mounted: give --logdir."
        )


def _write(path: Path, documents: list[dict[str, Any]], private: bool = False) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    descriptor = os.open(path, flags, 0o600 if private else 0o644)
    yaml = YAML()
    yaml.representer.ignore_aliases = lambda data: True
    with os.fdopen(descriptor, 'w') as file:
        yaml.dump_all(documents, file)
