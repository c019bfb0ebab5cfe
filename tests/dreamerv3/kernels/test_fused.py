"""jax.kernels: what `on` refuses, and when `auto` takes the plain loops."""

import importlib.util
import logging

import elements
import jax
import numpy as np
import pytest

from dreamerv3 import config as config_lib
from dreamerv3.agent.actions import Actions
from dreamerv3.agent.networks.kernels import fused
from embodied.core.errors import ConfigError
from embodied.jax import Devices, ptx

ONE = {'action': elements.Space(np.int32, (), 0, 5)}


def choose(*flags, devices=None):
    config = config_lib.resolve(['--configs', 'size1m', *flags])[0]
    return fused.choose_loops(config, Actions(ONE), devices or Devices())


@pytest.fixture
def hopper(monkeypatch):
    """A machine that looks as if it had the right GPU, and no NVRTC."""
    find = importlib.util.find_spec
    monkeypatch.setattr(jax, 'default_backend', lambda: 'gpu')
    monkeypatch.setattr(fused, '_capability', lambda: 9.0)
    monkeypatch.setattr(ptx, 'LIBRARIES', ('libnvrtc-missing.so',))
    hide = lambda name: None if name == 'nvidia' else find(name)
    monkeypatch.setattr(importlib.util, 'find_spec', hide)
    ptx._library.cache_clear()
    yield monkeypatch
    ptx._library.cache_clear()


def test_kernels_are_off_unless_asked_for():
    assert choose() is None


def test_an_unknown_mode_is_refused():
    with pytest.raises(ConfigError, match='jax.kernels=maybe is unknown'):
        choose('--jax.kernels', 'maybe')


def test_a_cpu_takes_the_plain_loops_and_refuses_to_do_otherwise():
    assert choose('--jax.kernels', 'auto') is None
    with pytest.raises(ConfigError, match='they need a GPU, and the platform is cpu'):
        choose('--jax.kernels', 'on')


@pytest.mark.parametrize(
    'flags, reason',
    [
        ((), 'NVRTC is not installed'),
        (('--configs', 'size1m', 'size12m'), 'they exist for agent.dyn deter 512'),
        (('--agent.dyn.classes', '8'), 'and it is .* classes 8'),
        (('--jax.compute_dtype', 'float32'), 'they need bfloat16'),
        (('--batch_size', '12'), 'a multiple of 16 rows, and batch_size=12'),
    ],
)
def test_what_cannot_be_falls_back_or_is_refused_with_the_reason(
    flags, reason, hopper, caplog
):
    with caplog.at_level(logging.INFO, logger=fused.__name__):
        assert choose(*flags, '--jax.kernels', 'auto') is None
    (record,) = caplog.records
    assert record.message.startswith('Plain loops instead of kernels: ')
    with pytest.raises(ConfigError, match=reason):
        choose(*flags, '--jax.kernels', 'on')


def test_older_gpus_fall_back(hopper):
    hopper.setattr(fused, '_capability', lambda: 8.0)
    assert choose('--jax.kernels', 'auto') is None
    with pytest.raises(ConfigError, match='and this GPU has 8.0'):
        choose('--jax.kernels', 'on')


def test_a_self_test_that_differs_falls_back(hopper, caplog):
    hopper.setattr(fused, 'disagreement', lambda *_: 'deter by 0.5')
    assert choose('--jax.kernels', 'auto') is None
    assert 'they differ from the plain loops here: deter by 0.5' in caplog.text
    with pytest.raises(ConfigError, match='deter by 0.5'):
        choose('--jax.kernels', 'on')


@pytest.mark.parametrize(
    'spaces, fits',
    [
        (ONE, True),
        ({'force': elements.Space(np.float32, (2, 3), -1, 1)}, True),
        ({'many': elements.Space(np.int32, (), 0, 40)}, False),
        ({'several': elements.Space(np.int32, 2, 0, 5)}, False),
        ({**ONE, 'force': elements.Space(np.float32, 2, -1, 1)}, False),
    ],
)
def test_imagination_has_a_kernel_for_one_small_action(spaces, fits):
    config = config_lib.resolve(['--configs', 'size1m'])[0].agent
    loops = fused.FusedLoops(config, Actions(spaces))
    assert (loops.imagine(1024, 15) is not None) == fits


@pytest.mark.parametrize('batch, steps, fits', [(16, 64, 1), (16, 1, 0), (6, 64, 0)])
def test_acting_and_odd_batches_take_the_plain_loops(batch, steps, fits):
    config = config_lib.resolve(['--configs', 'size1m'])[0].agent
    loops = fused.FusedLoops(config, Actions(ONE))
    assert (loops.observe(batch, steps) is not None) == fits
