"""Presets have exactly the published number of parameters, and start as specified."""

import math

import elements
import jax
import numpy as np
import oracle
import pytest
from golden_names import by_golden_name

from dreamerv3 import config
from dreamerv3.agent.model import Dreamer
from embodied.core.errors import ConfigError

IMAGE = {'image': elements.Space(np.uint8, (64, 64, 3))}
VECTOR = {'vector': elements.Space(np.float32, 24)}
ACTION = {'action': elements.Space(np.int32, (), 0, 18)}


def parameters(preset, obs):
    """Shapes of the optimized parameters."""
    settings, _ = config.resolve(['--configs', preset])
    model = Dreamer(obs, ACTION, settings)
    return jax.eval_shape(model.init, jax.random.key(0))['params']


@pytest.mark.parametrize(
    ('preset', 'obs', 'count'),
    [
        ('size1m', VECTOR, 642_025),
        ('size12m', IMAGE, 10_498_772),
        ('size25m', IMAGE, 23_496_244),
        ('size50m', IMAGE, 41_659_284),
        ('size100m', IMAGE, 93_482_068),
        ('size200m', IMAGE, 165_967_124),
        ('size400m', IMAGE, 372_924_052),
    ],
)
def test_parameter_counts_equal_the_published_ones(preset, obs, count):
    leaves = jax.tree.leaves(parameters(preset, obs))
    assert sum(math.prod(x.shape) for x in leaves) == count
    assert {x.dtype for x in leaves} == {np.dtype(np.float32)}


@pytest.mark.parametrize(('preset', 'side'), [('tiny', 16), ('debug', 64)])
def test_small_presets_have_the_size_of_the_oracle(preset, side):
    agent = config.resolve(['--configs', preset])[0].agent
    problem = oracle.Problem(
        **{k: agent.dyn[k] for k in ('deter', 'hidden', 'stoch', 'classes', 'blocks')},
        **{k: agent.enc[k] for k in ('units', 'depth', 'mults')},
        bins=agent.value.bins,
        image=(side, side, 3),
        vectors={'vector': 24},
        discrete={'action': 18},
    )
    obs = VECTOR | {'image': elements.Space(np.uint8, (side, side, 3))}
    leaves = jax.tree.leaves(parameters(preset, obs))
    assert sum(math.prod(x.shape) for x in leaves) == oracle.count(problem)


@pytest.mark.parametrize(
    ('flag', 'parts'),
    [
        ('--agent.dyn.deter=20', ['agent.dyn.deter=20', 'agent.dyn.blocks=8']),
        ('--agent.dec.depth=1', ['agent.dec.blocks=8', 'mults[-1] = 4']),
        ('--agent.dec.blocks=3', ['agent.dec.blocks=3', 'agent.dyn.deter=16']),
        ('--.*\\.mults=2,2,2,2,2', ['64x64', '5 stages', 'mults=(2, 2, 2, 2, 2)']),
    ],
)
def test_sizes_that_do_not_divide_are_refused(flag, parts):
    model = Dreamer(IMAGE, ACTION, config.resolve(['--configs', 'debug', flag])[0])
    with pytest.raises(ConfigError) as error:
        jax.eval_shape(model.init, jax.random.key(0))
    for part in parts:
        assert part in str(error.value)


@pytest.fixture(scope='module')
def initial():
    """Initial state of a small agent, its parameters by their golden names."""
    flags = ['--configs', 'size1m', '--jax.compute_dtype', 'float32']
    acts = {**ACTION, 'move': elements.Space(np.float32, 3, -1, 1)}
    model = Dreamer(IMAGE | VECTOR, acts, config.resolve(flags)[0])
    state = jax.jit(model.init)(jax.random.key(0))
    return state, by_golden_name(state['params'], state['params'])


def fan_in(name, shape):
    """Kernels are [in, out], [block, in, out] or [h, w, in, out]."""
    blocks = shape[0] if len(shape) == 3 else 1
    return blocks * math.prod(shape[-2:-1]) * (25 if len(shape) == 4 else 1)


def output_scale(name):
    if name in ('rew.head.logits.kernel', 'val.head.logits.kernel'):
        return 0.0
    return 0.01 if name.startswith('pol.head.') else 1.0


def test_every_kernel_starts_with_its_width_and_output_scale(initial):
    kernels = {k: v for k, v in initial[1].items() if k.endswith('.kernel')}
    assert len(kernels) == len(initial[1]) - sum(
        k.endswith(('.bias', '.scale')) for k in initial[1]
    )
    for name, kernel in kernels.items():
        width = output_scale(name) / math.sqrt(fan_in(name, kernel.shape))
        # Six standard errors of the estimate.
        slack = 6 / math.sqrt(2 * kernel.size)
        assert abs(kernel.std() - width) <= slack * width, name
        assert np.abs(kernel).max() <= 2 * 1.1369 * width, name


def test_biases_start_at_zero_and_scales_at_one(initial):
    for name, value in initial[1].items():
        if name.endswith('.bias'):
            assert not value.any(), name
        elif name.endswith('.scale'):
            assert (value == 1).all(), name


def test_no_two_kernels_share_their_random_numbers(initial):
    seen = set()
    for name, kernel in initial[1].items():
        if name.endswith('.kernel') and output_scale(name):
            width = output_scale(name) / math.sqrt(fan_in(name, kernel.shape))
            head = tuple(np.round(kernel.ravel()[:3] / width, 4))
            assert head not in seen, name
            seen.add(head)


def test_the_slow_value_starts_equal_to_the_fast_one(initial):
    state, _ = initial
    pairs = zip(
        *map(jax.tree.leaves, (state['slow'], state['params'].value)), strict=True
    )
    assert all(np.array_equal(slow, fast) for slow, fast in pairs)
