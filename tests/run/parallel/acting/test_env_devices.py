"""Workers of vector environments share the given GPUs out, and leave others alone."""

import os

import pytest
from data_parts import make_context

from embodied.core.errors import ConfigError
from embodied.run.parallel.env import devices
from embodied.run.parallel.settings import FIRST_EVAL_ENV, WorkerPlan

NAMES = ('CUDA_VISIBLE_DEVICES', 'JAX_PLATFORMS', 'XLA_PYTHON_CLIENT_PREALLOCATE')


@pytest.fixture
def variables(monkeypatch):
    """Those of this process, which are restored after the test."""
    for name in NAMES:
        monkeypatch.setenv(name, '')  # so that it is known before
        monkeypatch.delenv(name)
    return lambda: {name: os.environ.get(name) for name in NAMES}


def assign(tmp_path, envids, **changes):
    plan = WorkerPlan(tuple(envids), envids[0] >= FIRST_EVAL_ENV)
    devices.assign(make_context(tmp_path, **changes).settings, plan)


def test_environments_compute_on_the_cpu(tmp_path, variables):
    assign(tmp_path, [0, 1])
    assert variables() == dict(zip(NAMES, [None, 'cpu', 'false'], strict=True))


def test_what_the_user_has_set_stays(tmp_path, variables, monkeypatch):
    monkeypatch.setenv('JAX_PLATFORMS', 'cuda')
    assign(tmp_path, [0])
    assert variables()['JAX_PLATFORMS'] == 'cuda'


@pytest.mark.parametrize(
    'first, device', [(0, '1'), (64, '3'), (128, '1'), (FIRST_EVAL_ENV, '1')]
)
def test_workers_take_turns_with_the_devices(tmp_path, variables, first, device):
    options = {'envs': 192, 'envs_per_worker': 64, 'env_devices': '1, 3'}
    assign(tmp_path, range(first, first + 64), **options)
    assert variables()['CUDA_VISIBLE_DEVICES'] == device
    assert variables()['JAX_PLATFORMS'] is None


def test_what_is_no_list_of_numbers_is_refused(tmp_path, variables):
    with pytest.raises(ConfigError, match="env_devices='cuda:1' must list numbers"):
        assign(tmp_path, [0], env_devices='cuda:1')
