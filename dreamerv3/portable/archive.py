"""The archive: a policy as one file, with all that is needed to act.

policy.zip
  policy.json         spaces, units, what the environment's wrappers did, versions
  greedy.stablehlo    the policy with the most likely actions, by jax.export
  sampled.stablehlo   the same with samples
  weights.bin         weights of both, at the offsets that policy.json tells
"""

import json
import platform
import zipfile
from collections.abc import Iterable, Mapping
from importlib import metadata
from io import BytesIO
from pathlib import Path
from typing import Any, TypeAlias

import jax

from embodied.envs import registry

from .. import config as config_lib
from ..api.foreign import for_others
from ..api.loaded import LoadedAgent
from ..api.origin import Origin
from ..commands.describe import declared

__all__ = ['ARCHIVE', 'Entries', 'describe_policy', 'shaped', 'write_archive']

ARCHIVE = 'policy.zip'
VERSION = 1  # raised when players of before could not read what this code writes
PACKAGES = ('dreamer-parallel', 'jax', 'jaxlib', 'numpy')

Entries: TypeAlias = dict[str, Iterable[bytes]]  # files of the archive, in parts


def describe_policy(
    agent: LoadedAgent, interface: Mapping[str, Any] | None
) -> dict[str, Any]:
    """What is to be known about the policy, without the programs.

    interface: of `describe_interface`; None if the environment is not known.
    """
    config = agent.config
    carry = jax.tree.leaves(agent.init_policy(1))
    spaces = Origin(config, agent.obs_space, agent.act_space).save()
    for key, about in spaces['act_space'].items():
        about['environment'] = interface and interface['actions'][key]
    for key, about in spaces['obs_space'].items():
        about['environment'] = interface and interface['observations'][key]
    return {
        'version': VERSION,
        'task': for_others(config).task,
        'step': agent.step,
        'observations': spaces['obs_space'],
        'actions': spaces['act_space'],
        'environment': {
            'settings': _settings(config),
            'spaces': interface['spaces'] if interface else {},
        },
        'seed': config.seed,
        'compute_dtype': config.jax.compute_dtype,
        'state': [{**shaped(x), 'shape': list(x.shape[1:])} for x in carry],
        'versions': {
            'python': platform.python_version(),
            **{name: metadata.version(name) for name in PACKAGES},
        },
    }


def write_archive(
    path: Path | BytesIO, config: Any, about: Mapping[str, Any], entries: Entries
) -> None:
    """about: of `describe_policy`, with what the format adds."""
    text = json.dumps(about, indent=2, allow_nan=False)
    with zipfile.ZipFile(path, 'w', zipfile.ZIP_DEFLATED) as file:
        file.writestr('policy.json', text + '\n')
        file.writestr('config.yaml', config_lib.dump(for_others(config)))
        for name, parts in entries.items():
            entry = zipfile.ZipInfo(name)  # weights would not get smaller
            with file.open(entry, 'w', force_zip64=True) as stream:
                for part in parts:
                    stream.write(part)


def shaped(value: Any) -> dict[str, Any]:
    """Type and shape of an array."""
    return {'dtype': value.dtype.name, 'shape': list(value.shape)}


def _settings(config: Any) -> list[dict[str, Any]]:
    """The options of the task's suite with what they mean."""
    suite, _ = registry.parse(config.task)
    prefix = f'env.{suite}.'
    return [
        {'name': x.name, 'value': config.flat[x.name], 'meaning': x.comment}
        for x in declared()
        if x.name.startswith(prefix)
    ]
