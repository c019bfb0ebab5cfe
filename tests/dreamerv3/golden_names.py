"""Names of the golden file for the parameters of our networks, and values by them."""

import re

import jax
import jax.numpy as jnp
import numpy as np

from dreamerv3.model import Nets
from embodied.jax.programs import Tree

__all__ = ['by_golden_name', 'golden_name', 'with_golden_values']

# Applied to our names one after the other.
SUBSTITUTIONS = {
    r'^enc\.mlp\.layers\.(\d)': r'enc.mlp\1',
    r'^enc\.cnn\.(\d)': r'enc.cnn\1',
    r'^dyn\.deter_in': 'dyn.dynin0',
    r'^dyn\.stoch_in': 'dyn.dynin1',
    r'^dyn\.action_in': 'dyn.dynin2',
    r'^dyn\.hidden_norm': 'dyn.dynhid0norm',
    r'^dyn\.hidden': 'dyn.dynhid0',
    r'^dyn\.gru': 'dyn.dyngru',
    r'^dyn\.post_logit': 'dyn.obslogit',
    r'^dyn\.post': 'dyn.obs0',
    r'^dyn\.prior_logit': 'dyn.priorlogit',
    r'^dyn\.prior\.layers\.(\d)': r'dyn.prior\1',
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
    r'\.mlp\.layers\.(\d)\.(linear|norm)\.': r'.mlp.\2\1.',
    r'\.(linear|conv)\.': '.',
    r'\.norm\.': 'norm.',
}


def golden_name(name: str, nets: Nets) -> str:
    """dyn.deter_in.norm.scale -> dyn.dynin0norm.scale."""
    if match := re.match(r'dec\.vectors\.(\w+)\.', name):
        discrete = nets.dec.inputs.vectors[match[1]].discrete
        output = 'logits' if discrete else 'pred'
        return name.replace(match[0], f'dec.vec.{match[1]}.{output}.')
    if match := re.match(r'dec\.image\.stages\.(\d)', name):
        # The file counts the stages of the decoder backwards.
        stage = len(nets.dec.image.stages) - 1 - int(match[1])
        name = name.replace(match[0], f'dec.conv{stage}')
    for pattern, replacement in SUBSTITUTIONS.items():
        name = re.sub(pattern, replacement, name)
    return name


def by_golden_name(tree, nets: Nets) -> dict[str, np.ndarray]:
    """Leaves of a tree like `nets`, or of {'slow': ...}, by the names of the file."""
    names = (golden_name(name, nets) for name in Tree(tree).names)
    return dict(zip(names, map(np.asarray, jax.tree.leaves(tree)), strict=True))


def with_golden_values(tree, values: dict[str, np.ndarray], nets: Nets):
    """The same tree with all its leaves replaced by the values of their names."""
    structure = Tree(tree)
    leaves = [values[golden_name(name, nets)] for name in structure.names]
    assert [x.shape for x in leaves] == [shape for shape, _ in structure.shapes]
    return structure.unflatten([jnp.asarray(x, jnp.float32) for x in leaves])
