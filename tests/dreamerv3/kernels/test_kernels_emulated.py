"""The kernels on an emulated cluster, by the self-test that a GPU runs as well.

The emulator runs the same source with the same indices, barriers and matrix units. It
says nothing about speed, and nothing about the compiler of the device.
"""

import shutil

import elements
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from emulated import Emulator

from dreamerv3 import config as config_lib
from dreamerv3.agent.actions import Actions
from dreamerv3.agent.networks.kernels import fused, selftest

MISSING = 'g++ is missing (apt-get install g++)'
needs_compiler = pytest.mark.skipif(not shutil.which('g++'), reason=MISSING)
SPACES = {
    'discrete': elements.Space(np.int32, (), 0, 18),
    'continuous': elements.Space(np.float32, (2, 3), -1, 1),
}


def loops_and_rest(space, launch):
    config = config_lib.resolve(['--configs', 'size1m'])[0].agent
    actions = Actions({'action': space})
    return fused.FusedLoops(config, actions, launch), config, actions


def disagreement(space, launch, batch=16, steps=2, rows=16):
    loops, *rest = loops_and_rest(space, launch)
    pair = loops.observe(batch, steps), loops.imagine(rows, steps)
    assert None not in pair
    return selftest.disagreement(*pair, *rest)


@needs_compiler
@pytest.mark.long
@pytest.mark.parametrize(
    'kind, batch, rows',
    [
        ('discrete', 16, 16),
        ('discrete', 32, 64),  # two clusters, and one with four tiles
        ('continuous', 16, 32),
    ],
)
def test_kernels_agree_with_the_plain_loops(kind, batch, rows, tmp_path):
    launch = Emulator(tmp_path)
    assert disagreement(SPACES[kind], launch, batch, 3, rows) == ''


@needs_compiler
@pytest.mark.long
def test_results_do_not_depend_on_the_order_of_threads(tmp_path):
    """A barrier that is missing lets a thread read what is not yet written."""
    first, second = [], []
    for seed, results in ((1, first), (2, second)):
        emulator = Emulator(tmp_path, seed)

        def launch(*args, emulator=emulator, results=results):
            outs = emulator(*args)
            jax.debug.callback(lambda *x: results.extend(x), *outs, ordered=True)
            return outs

        assert disagreement(SPACES['discrete'], launch) == ''
        jax.effects_barrier()
    assert len(first) == 4 + 6 + 3  # of both loops of observe, and of imagine
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one, other)


def zeros(name, shape, operands, results):
    return [jnp.zeros(x.shape, x.dtype) for x in results]


def nothing(name, shape, operands, results):
    fill = lambda x: jnp.nan if jnp.issubdtype(x.dtype, jnp.floating) else 0
    return [jnp.full(x.shape, fill(x), x.dtype) for x in results]


@pytest.mark.parametrize('launch', [zeros, nothing])
def test_the_self_test_names_what_is_wrong(launch):
    wrong = disagreement(SPACES['discrete'], launch)
    for part in ('deter', 'logits', 'gradient of stoch', 'samples of the prior'):
        assert f'{part} by' in wrong
