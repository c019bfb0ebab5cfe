"""Runs and bundles that version 0.1.0 has written still open."""

import functools
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest

import dreamerv3
from embodied import envs
from embodied.logging import read_records

ARCHIVE = Path(__file__).parents[2] / 'data' / 'runs-0.1.0.tar.xz'
OPTIONS = {
    'run.debug': False,
    'replay.size': 2000,
    'replay.chunksize': 64,
    'run.envs': 2,
    'run.report_every': 0,
}
SECONDS = 240


@pytest.fixture
def old(tmp_path):
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter='data')
    return tmp_path


def resume(logdir, script, **options):
    own = {**OPTIONS, 'logdir': logdir, **options}
    flags = [str(x) for k, v in own.items() for x in (f'--{k}', v)]
    command = [sys.executable, '-m', 'dreamerv3', script, '--configs', 'tiny', 'debug']
    done = subprocess.run(
        [*command, *flags], capture_output=True, text=True, timeout=SECONDS
    )
    assert done.returncode == 0, done.stderr


def check_resumed(logdir, before, after):
    """The agent was restored, and the counters go on where they were."""
    events = read_records(logdir / 'events.jsonl')
    *_, restored = (x for x in events if x['event'] == 'restored')
    assert restored['updates'] == before
    *_, ended = (x for x in events if x['event'] == 'ended')
    assert ended['step'] >= after and ended['updates'] > before


def test_a_distributed_run_goes_on(old):
    options = {'task': 'dummy_mixed', 'env.dummy.size': 16, 'run.eval_envs': 1}
    resume(old / 'parallel', 'parallel', **options, **{'run.steps': 700})
    check_resumed(old / 'parallel', 564, 700)


@pytest.mark.long
def test_a_run_in_one_process_goes_on(old):
    resume(old / 'train', 'train', task='toy_catch', **{'run.steps': 340})
    check_resumed(old / 'train', 264, 340)


@pytest.mark.long
def test_a_run_with_a_pickled_environment_goes_on(old):
    config = old / 'own_env' / 'config.yaml'
    config.write_text(config.read_text().replace('/tmp/old', str(old)))
    dreamerv3.train(
        functools.partial(envs.Dummy, 'disc', (16, 16)),
        logdir=old / 'own_env',
        steps=340,
        script='parallel',
        configs=['tiny', 'debug'],
        options={**OPTIONS, 'run.eval_envs': 0},
    )
    check_resumed(old / 'own_env', 264, 340)


def test_bundles_and_runs_load_with_the_same_weights(old):
    bundle, run = (dreamerv3.load(old / name) for name in ('bundle', 'train'))
    obs = {key: space.sample() for key, space in run.obs_space.items()}
    one, two = (agent.act(obs, greedy=True)[0] for agent in (bundle, run))
    for key in run.act_space:
        np.testing.assert_array_equal(one[key], two[key])
