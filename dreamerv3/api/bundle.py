"""Bundles: a trained agent in a folder that can be given to others.

    OUT/
      weights.safetensors  parameters by name, without the optimizer's state
      agent.json           step, and the spaces that the agent was made for
      config.yaml          its options
      scores.csv           the training scores, binned over environment steps
      README.md            the card: task, size, scores, how to load it

Nothing in it runs code when it is loaded. Its task may name code, which `dreamer eval`,
`play` and `import` refuse to run without --trust.
"""

import json
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from embodied.core.errors import CheckpointError
from embodied.core.files import why_unreadable
from embodied.core.outside import open_plain, read_plain

from .. import config as config_lib
from .foreign import for_others
from .origin import Origin

__all__ = ['AGENT', 'CARD', 'FILES', 'SCORES', 'WEIGHTS', 'is_bundle', 'read', 'write']

WEIGHTS = r'^(params|slow|ranges)\.'  # what of an agent's state is not the optimizer's
FORMAT = 1  # raised when code of before could not read what this code writes
TENSORS = 'weights.safetensors'
AGENT = 'agent.json'
CONFIG = 'config.yaml'
SCORES, CARD = 'scores.csv', 'README.md'
FILES = (AGENT, CONFIG, TENSORS, SCORES, CARD)

BROKEN = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError)
LARGEST = 1 << 22  # bytes of agent.json and of config.yaml


def is_bundle(path: Path) -> bool:
    return (path / AGENT).exists()


def write(
    path: Path, origin: Origin, state: Mapping[str, np.ndarray], step: int
) -> Origin:
    """Writes weights and agent.json; returns the origin without the run's places."""
    origin = origin._replace(config=for_others(origin.config))
    path.mkdir(parents=True, exist_ok=True)
    tensors = {name: np.asarray(value, order='C') for name, value in state.items()}
    safetensors.numpy.save_file(tensors, path / TENSORS)
    about = {'format': FORMAT, 'step': int(step), **origin.save()}
    del about['config']
    (path / CONFIG).write_text(config_lib.dump(origin.config))
    (path / AGENT).write_text(json.dumps(about, indent=2, allow_nan=False) + '\n')
    # safetensors creates files that only their owner can read; a bundle is for others.
    (path / TENSORS).chmod(stat.S_IMODE((path / AGENT).stat().st_mode))
    return origin


def read(path: Path) -> tuple[Origin, dict[str, np.ndarray], int]:
    """Origin, weights by name and step of a bundle."""
    try:
        about: dict[str, Any] = json.loads(read_plain(path / AGENT, LARGEST))
        if about['format'] != FORMAT:
            raise CheckpointError(
                f'The bundle {path} has format {about["format"]}, this version reads '
                f'format {FORMAT}. Load it with the version that wrote it.'
            )
        about['config'] = YAML(typ='safe').load(read_plain(path / CONFIG, LARGEST))
        with open_plain(path / TENSORS, follow=True) as file:
            if file is None:
                raise OSError(f'there is no plain file {TENSORS}')
        state = safetensors.numpy.load_file(path / TENSORS)
        return Origin.load(about), state, about['step']
    except (*BROKEN, safetensors.SafetensorError, YAMLError) as error:
        raise CheckpointError(
            f'The bundle {path} cannot be read: {why_unreadable(error)}. Export it '
            'again.'
        ) from error
