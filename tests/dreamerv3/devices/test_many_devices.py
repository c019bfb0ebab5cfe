"""The agent on a mesh of devices computes what it computes on one."""

import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from embodied.transport import free_port

MESH, REPLICA = (
    Path(__file__).parents[1] / f'{x}_trial.py' for x in ('mesh', 'replica')
)
EXAMPLES = Path(__file__).parents[3] / 'examples'
DEVICES = 8
CLOSE = {'rtol': 1e-4, 'atol': 1e-5}


def environ(*flags):
    # Compiling takes most of the time here, and half as long like this.
    flags = ('--xla_backend_optimization_level=0', *flags)
    return {
        **os.environ,
        'XLA_FLAGS': ' '.join(flags),
        'PYTHONPATH': str(EXAMPLES),  # modules of own agents
    }


def run_trial(out, *layouts):
    command = [sys.executable, str(MESH), str(out), *layouts]
    devices = f'--xla_force_host_platform_device_count={DEVICES}'
    subprocess.run(command, env=environ(devices), check=True)
    return pickle.loads(out.read_bytes())


@pytest.fixture(scope='module')
def trial(tmp_path_factory):
    """A save, and what one device and two groups of four make of it."""
    return run_trial(tmp_path_factory.mktemp('trial') / 'out', '1x1', '2x4')


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


def assert_same_training(results):
    one = dict(results['1x1'])
    assert one.pop('share') == 1
    for layout in results.keys() - {'1x1'}:
        many, fsdp = dict(results[layout]), int(layout.split('x')[1])
        # All but the slow value and scalars is split.
        assert 1 / fsdp <= many.pop('share') < 1 / fsdp + 0.1
        assert_close(one, many, layout)


def test_groups_of_devices_train_and_load_like_one(trial):
    assert_same_training(trial['results'])


@pytest.mark.long
def test_any_number_of_devices_trains_and_loads_like_one(tmp_path):
    results = run_trial(tmp_path / 'out', '1x1', '8x1', '1x8', '1x2')['results']
    assert_same_training(results)


@pytest.mark.long
def test_an_own_agent_trains_on_several_devices_as_on_one(tmp_path):
    module = '--agent.module=own_agent:FindReward'
    results = run_trial(tmp_path / 'out', '1x1', '2x2', module)['results']
    metrics = results['2x2']['metrics'][-1]
    assert metrics['loss/found'] > 0 and 0 <= metrics['found/right'] <= 1
    assert any('own.found' in name for name in results['2x2']['state'])
    assert_same_training(results)


@pytest.mark.long
def test_options_train_on_several_devices_as_on_one(tmp_path):
    flags = ('--agent.harmony=True', '--agent.representation=barlow')
    results = run_trial(tmp_path / 'out', '1x1', '4x2', *flags)['results']
    assert {'own.barlow.kernel', 'own.harmony.dynamics'} <= {
        name.removeprefix('params.') for name in results['4x2']['state']
    }
    assert results['4x2']['metrics'][-1]['loss/barlow'] > 0
    assert_same_training(results)


@pytest.mark.long
def test_replicas_train_like_one_process_and_stop_together(trial, tmp_path):
    replicas, port = 2, str(free_port())
    start, outs = tmp_path / 'start', [tmp_path / str(i) for i in range(replicas)]
    start.write_bytes(pickle.dumps(trial['start']))
    command = lambda i: [str(i), str(replicas), port, str(start), str(outs[i])]
    processes = [
        subprocess.Popen([sys.executable, str(REPLICA), *command(i)], env=environ())
        for i in range(replicas)
    ]
    assert [process.wait() for process in processes] == [0] * replicas
    one = trial['results']['1x1']
    for replica, out in enumerate(outs):
        result = pickle.loads(out.read_bytes())
        assert result['leader'] == 100
        assert result['more'] == 2
        assert result['updates'] == len(one['metrics']) + 1
        assert len(result['compiled']) == 1
        rows = slice(4 * replica, 4 * (replica + 1))
        expected = {k: x[rows] for k, x in one['replay'].items()}
        assert_close(one['metrics'], result['metrics'], 'metrics')
        assert_close(expected, result['replay'], 'replay')
        assert_close(one['state'], result['state'], 'state')
