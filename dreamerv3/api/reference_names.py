"""Weights of the public reference implementation: their file and their names.

A checkpoint of the reference is a folder with `agent.pkl`, which holds
{'params': {'dyn/dyngru/kernel': array, ...}, ...}; docs/bundles.md lists how its names
and ours correspond.
"""

import pickle
import re
from pathlib import Path

import numpy as np

from embodied.core import unpickling
from embodied.core.errors import CheckpointError
from embodied.core.files import why_unreadable

from ..agent.model import Nets

__all__ = ['is_reference', 'read', 'reference_name']

# Applied to our names one after the other.
SUBSTITUTIONS = {
    r'^enc\.mlp\.layers\.(\d+)': r'enc.mlp\1',
    r'^enc\.cnn\.(\d+)': r'enc.cnn\1',
    r'^dyn\.deter_in': 'dyn.dynin0',
    r'^dyn\.stoch_in': 'dyn.dynin1',
    r'^dyn\.action_in': 'dyn.dynin2',
    r'^dyn\.hidden_norm': 'dyn.dynhid0norm',
    r'^dyn\.hidden': 'dyn.dynhid0',
    r'^dyn\.gru': 'dyn.dyngru',
    r'^dyn\.post_logit': 'dyn.obslogit',
    r'^dyn\.post': 'dyn.obs0',
    r'^dyn\.prior_logit': 'dyn.priorlogit',
    r'^dyn\.prior\.layers\.(\d+)': r'dyn.prior\1',
    r'^dec\.image\.from_deter': 'dec.sp0',
    r'^dec\.image\.from_stoch\.0': 'dec.sp1',
    r'^dec\.image\.from_stoch\.1': 'dec.sp2',
    r'^dec\.image\.norm': 'dec.spnorm',
    r'^dec\.image\.out': 'dec.imgout',
    r'^reward': 'rew',
    r'^cont\.out': 'con.head.logit',
    r'^cont': 'con',
    r'^value': 'val',
    r'^slow': 'slowval',
    r'^(rew|val|slowval)\.out': r'\1.head.logits',
    r'^policy\.logits\.(\w+)': r'pol.head.\1.logits',
    r'^policy\.means\.(\w+)': r'pol.head.\1.mean',
    r'^policy\.stds\.(\w+)': r'pol.head.\1.stddev',
    r'^policy': 'pol',
    r'\.mlp\.layers\.(\d+)\.(linear|norm)\.': r'.mlp.\2\1.',
    r'\.(linear|conv)\.': '.',
    r'\.norm\.': 'norm.',
}

AGENT = 'agent.pkl'
LATEST = 'latest'


def reference_name(name: str, nets: Nets) -> str:
    """dyn.deter_in.norm.scale -> dyn.dynin0norm.scale.

    name: of a parameter of `nets`, or of the slow value as slow.<...>.
    """
    if match := re.match(r'dec\.vectors\.(\w+)\.', name):
        discrete = nets.dec.inputs.vectors[match[1]].discrete
        output = 'logits' if discrete else 'pred'
        return name.replace(match[0], f'dec.vec.{match[1]}.{output}.')
    if match := re.match(r'dec\.image\.stages\.(\d+)', name):
        assert nets.dec.image is not None
        # The reference counts the stages of the decoder backwards.
        stage = len(nets.dec.image.stages) - 1 - int(match[1])
        name = name.replace(match[0], f'dec.conv{stage}')
    for pattern, replacement in SUBSTITUTIONS.items():
        name = re.sub(pattern, replacement, name)
    return name


def is_reference(path: Path) -> bool:
    return _find(path) is not None


def read(path: Path) -> dict[str, np.ndarray]:
    """Parameters by dotted name. Nothing but arrays is unpickled."""
    file = _find(path)
    assert file is not None, path
    try:
        with file.open('rb') as stream:
            params = unpickling.load(stream)['params']
        items = dict(params).items()
    except (pickle.UnpicklingError, EOFError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            f'{file} is no checkpoint of the reference implementation: '
            f'{why_unreadable(error)}.'
        ) from error
    return {name.replace('/', '.'): np.asarray(value) for name, value in items}


def _find(path: Path) -> Path | None:
    """The file of the newest checkpoint in `path`, a checkpoint or its file."""
    if path.name == AGENT and path.exists():
        return path
    for folder in (path, path / 'ckpt'):
        if (folder / LATEST).exists():
            folder = folder / (folder / LATEST).read_text().strip()
        # Ours have manifests.
        if (folder / AGENT).exists() and not (folder / 'manifest.json').exists():
            return folder / AGENT
    return None
