"""The agent on a mesh of devices computes what it computes on one."""

import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

TRIAL = Path(__file__).parent / 'mesh_trial.py'
DEVICES = 8
CLOSE = {'rtol': 1e-4, 'atol': 1e-5}


def run_trial(out, *layouts):
    flags = f'--xla_force_host_platform_device_count={DEVICES}'
    command = [sys.executable, str(TRIAL), str(out), *layouts]
    subprocess.run(command, env={**os.environ, 'XLA_FLAGS': flags}, check=True)
    return pickle.loads(out.read_bytes())


def assert_close(one, two, path=''):
    if isinstance(one, dict):
        assert one.keys() == two.keys()
        for key in one:
            assert_close(one[key], two[key], f'{path}.{key}')
    elif isinstance(one, list):
        for index, pair in enumerate(zip(one, two, strict=True)):
            assert_close(*pair, f'{path}.{index}')
    else:
        np.testing.assert_allclose(one, two, **CLOSE, err_msg=path)


@pytest.mark.parametrize(
    'layouts',
    [['2x4'], pytest.param(['8x1', '1x8', '1x2'], marks=pytest.mark.long)],
    ids='-'.join,
)
def test_any_number_of_devices_trains_and_loads_like_one(tmp_path, layouts):
    results = run_trial(tmp_path / 'out', '1x1', *layouts)['results']
    one = results.pop('1x1')
    assert one.pop('share') == 1
    for layout, many in results.items():
        fsdp = int(layout.split('x')[1])
        # All but the slow value and scalars is split.
        assert 1 / fsdp <= many.pop('share') < 1 / fsdp + 0.1
        assert_close(one, many, layout)
