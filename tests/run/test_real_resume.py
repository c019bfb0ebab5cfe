"""Exact resume with the real parts: JAX agent, replay, built-in task, factories."""

import signal

import elements
import numpy as np
import pytest
import run_parts as parts

from dreamerv3 import config as config_lib
from dreamerv3 import main
from embodied.core.checkpoint import load_part
from embodied.jax.agent import REPORT
from embodied.logging import Logger

STEPS = 140
FLAGS = (
    *('--configs', 'debug', '--task', 'toy_reach'),
    *('--jax.cache=', '--run.report_every', '0'),
)


def run(logdir, *flags, interrupt=None):
    config, _ = config_lib.resolve(
        [*FLAGS, '--logdir', str(logdir), '--run.steps', str(STEPS), *flags]
    )
    output = lambda entries: interrupt and interrupt()
    main.launch(config, lambda: Logger(elements.Counter(), [output]))


def assert_same(first, second, path=()):
    assert type(first) is type(second), path
    if isinstance(first, dict):
        assert first.keys() == second.keys(), path
        for key in first:
            assert_same(first[key], second[key], (*path, key))
    elif isinstance(first, list | tuple):
        assert len(first) == len(second), path
        for i, (x, y) in enumerate(zip(first, second, strict=True)):
            assert_same(x, y, (*path, i))
    elif path[-1] != 'stepid':  # ids are unique, also between runs of one seed
        np.testing.assert_array_equal(first, second, err_msg=str(path))


def outcome(logdir):
    saved = {x: load_part(logdir, x) for x in ('agent', 'collector', 'learner')}
    saved['agent']['counts'].pop(REPORT)  # random numbers drawn for reports
    saved['agent'].pop('origin')  # the options, which name the folder
    return {**saved, 'updates': load_part(logdir, 'progress')['updates']}


@pytest.fixture(scope='module')
def uninterrupted(tmp_path_factory):
    folder = tmp_path_factory.mktemp('whole')
    run(folder)
    return outcome(folder)


def test_a_stopped_and_resumed_run_ends_with_the_same_parameters(
    tmp_path, uninterrupted
):
    stop = parts.Once(40, lambda: signal.raise_signal(signal.SIGTERM))
    run(tmp_path, '--run.log_every', '-1', interrupt=stop)
    middle = load_part(tmp_path, 'progress')
    assert 0 < middle['updates'] < uninterrupted['updates']
    # The second half reports all the time and keeps its environments in processes.
    run(tmp_path, '--run.report_every', '-1', '--run.debug', 'False')
    assert_same(outcome(tmp_path), uninterrupted)


def test_part_of_another_run_is_the_start(tmp_path):
    run(tmp_path / 'old', '--run.steps', '60')
    run(
        tmp_path / 'new',
        *('--run.from_checkpoint', str(tmp_path / 'old')),
        *('--run.from_checkpoint_regex', r'^params\.enc\.'),
        *('--run.train_ratio', '0', '--seed', '1'),
    )
    old = load_part(tmp_path / 'old', 'agent')['state']
    new = load_part(tmp_path / 'new', 'agent')['state']
    same = {name for name in old if np.array_equal(new[name], old[name])}
    encoder = {name for name in old if name.startswith('params.enc.')}
    kernels = {x for x in old if x.startswith('params.') and x.endswith('kernel')}
    assert encoder and encoder <= same
    assert kernels & same == kernels & encoder
