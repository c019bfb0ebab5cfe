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
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from embodied.envs import registry

from ..api.foreign import without_places
from ..api.loaded import LoadedAgent
from ..api.origin import Origin
from ..commands.describe import declared
from .programs import PLATFORMS, Programs

__all__ = ['ARCHIVE', 'describe_policy', 'write_archive']

ARCHIVE = 'policy.zip'
FORMAT = 1  # raised when players of before could not read what this code writes
PACKAGES = ('dreamer-parallel', 'jax', 'jaxlib', 'numpy')
ALIGNMENT = 64  # bytes


def describe_policy(
    agent: LoadedAgent, interface: Mapping[str, Any] | None
) -> dict[str, Any]:
    """What is to be known about the policy, without the programs.

    interface: of `describe_interface`; None if the environment is not known.
    """
    config = agent.config
    spaces = Origin(config, agent.obs_space, agent.act_space).save()
    for key, about in spaces['act_space'].items():
        about['environment'] = interface and interface['actions'][key]
    for key, about in spaces['obs_space'].items():
        about['environment'] = interface and interface['observations'][key]
    return {
        'format': FORMAT,
        'task': config.task,
        'step': agent.step,
        'observations': spaces['obs_space'],
        'actions': spaces['act_space'],
        'environment': {
            'settings': _settings(config),
            'spaces': interface['spaces'] if interface else {},
        },
        'seed': config.seed,
        'compute_dtype': config.jax.compute_dtype,
        'platforms': PLATFORMS,
        'versions': {
            'python': platform.python_version(),
            **{name: metadata.version(name) for name in PACKAGES},
        },
        'config': dict(without_places(config).flat),
    }


def write_archive(path: Path, about: Mapping[str, Any], programs: Programs) -> None:
    """about: of `describe_policy`; where the weights lie is added."""
    weights, offset = [], 0
    for value in programs.weights:
        weights.append({**_shaped(value), 'offset': offset})
        offset += value.nbytes + -value.nbytes % ALIGNMENT
    state = [_shaped(x) for x in programs.state]
    text = json.dumps({**about, 'state': state, 'weights': weights}, indent=2)
    with zipfile.ZipFile(path, 'w', zipfile.ZIP_DEFLATED) as file:
        file.writestr('policy.json', text + '\n')
        for name, code in programs.code.items():
            file.writestr(f'{name}.stablehlo', code)
        entry = zipfile.ZipInfo('weights.bin')  # which do not get smaller
        with file.open(entry, 'w', force_zip64=True) as stream:
            for value in programs.weights:
                data = np.ascontiguousarray(value).tobytes()
                stream.write(data + b'\0' * (-len(data) % ALIGNMENT))


def _shaped(value: Any) -> dict[str, Any]:
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
