"""An interrupted and resumed run ends exactly like one that was never interrupted."""

import os
import signal
import subprocess
import sys

import elements
import numpy as np
import pytest
import run_parts as parts

import embodied
from embodied.core.checkpoint import load_part
from embodied.core.errors import EnvError

STEPS = 200
COMPARED = ('agent', 'replay', 'collector', 'learner', 'progress')


def run(logdir, before_step=None, ahead=0, env=parts.SaveableEnv, **changes):
    agent = parts.Agent(ahead)
    embodied.run.train(
        lambda: agent,
        parts.SaveableReplay,
        lambda index: env(index, before_step),
        parts.Stream,
        parts.make_logger,
        parts.make_args(logdir, **{'steps': STEPS, **changes}),
    )
    return agent


def outcome(logdir):
    """Everything that training can have left a trace in, as comparable text."""
    saved = {name: load_part(logdir, name) for name in COMPARED}
    saved['progress'].pop('seconds')
    saved['replay']['content']['rngs'].pop('report')
    return elements.tree.map(repr, saved)


def by_limit(logdir, at, **options):
    run(logdir, steps=at, **options)


def by_signal(logdir, at, **options):
    stop = parts.Once(at, lambda: signal.raise_signal(signal.SIGTERM))
    run(logdir, before_step=stop, **options)


def by_error(logdir, at, **options):
    def fail():
        raise RuntimeError('broken on purpose')

    with pytest.raises(EnvError, match='broken on purpose'):
        run(logdir, before_step=parts.Once(at, fail), save_every=-1.0, **options)


@pytest.fixture(scope='module')
def uninterrupted(tmp_path_factory):
    folders = {ahead: tmp_path_factory.mktemp('run') for ahead in (0, 2)}
    for ahead, folder in folders.items():
        run(folder, ahead=ahead)
    return {ahead: outcome(folder) for ahead, folder in folders.items()}


@pytest.mark.parametrize('ahead', [0, 2])
@pytest.mark.parametrize('at', [1, 2, 37, 120, 197])
@pytest.mark.parametrize('interrupt', [by_limit, by_signal, by_error])
def test_resumed_and_uninterrupted_runs_agree(
    tmp_path, uninterrupted, interrupt, at, ahead
):
    interrupt(tmp_path, at, ahead=ahead)
    agent = run(tmp_path, ahead=ahead)
    assert agent.loaded == 'everything'
    assert outcome(tmp_path) == uninterrupted[ahead]


def test_many_interruptions_of_all_kinds_agree(tmp_path, uninterrupted):
    rng = np.random.default_rng(0)
    for interrupt in rng.permutation([by_signal, by_error] * 5):
        interrupt(tmp_path, at=int(rng.integers(1, 40)))
    run(tmp_path)
    assert outcome(tmp_path) == uninterrupted[0]


CHILD = """
import sys
import embodied, run_parts as parts
report = lambda: print('step', flush=True)
embodied.run.train(
    parts.Agent, parts.SaveableReplay, lambda index: parts.SaveableEnv(index, report),
    parts.Stream, parts.make_logger,
    parts.make_args(sys.argv[1], steps=int(sys.argv[2]), save_every=-1.0))
"""


def test_a_run_that_is_killed_again_and_again_agrees(tmp_path, uninterrupted):
    rng = np.random.default_rng(0)
    paths = os.pathsep.join([str(parts.FOLDER), os.environ.get('PYTHONPATH', '')])
    for _ in range(6):
        with subprocess.Popen(
            [sys.executable, '-c', CHILD, str(tmp_path), str(STEPS)],
            stdout=subprocess.PIPE,
            env={**os.environ, 'PYTHONPATH': paths},
        ) as child:
            for _ in range(int(rng.integers(1, 80))):
                child.stdout.readline()
            child.kill()
    run(tmp_path)
    assert outcome(tmp_path) == uninterrupted[0]


def test_reports_logs_and_saves_leave_no_trace(tmp_path, uninterrupted):
    run(tmp_path, report_every=-1.0, log_every=-1.0, save_every=-1.0, keep=3)
    assert outcome(tmp_path) == uninterrupted[0]


def test_a_stop_between_two_updates_of_one_step_agrees(tmp_path):
    options = {'train_ratio': 60.0, 'steps': 80}  # ten updates per turn of acting
    run(tmp_path / 'whole', **options)

    class Stopping(parts.Agent):
        def train(self, carry, batch):
            if len(self.trained) == 33:
                signal.raise_signal(signal.SIGINT)
            return super().train(carry, batch)

    args = parts.make_args(tmp_path / 'halves', **options)
    for agent in (Stopping, parts.Agent):
        embodied.run.train(
            agent,
            parts.SaveableReplay,
            parts.SaveableEnv,
            parts.Stream,
            parts.make_logger,
            args,
        )
    assert outcome(tmp_path / 'halves') == outcome(tmp_path / 'whole')


def test_without_saveable_environments_only_the_running_episodes_are_new(tmp_path):
    run(tmp_path, steps=100, env=parts.Env)
    before = {name: load_part(tmp_path, name) for name in COMPARED}
    agent = run(tmp_path, steps=100 + 2, env=parts.Env, train_ratio=0.0)
    after = {name: load_part(tmp_path, name) for name in COMPARED}
    np.testing.assert_array_equal(agent.weights, before['agent']['weights'])
    for worker, stream in before['replay']['content']['streams'].items():
        resumed = after['replay']['content']['streams'][worker]
        assert repr(resumed[:-1]) == repr(stream)
        assert resumed[-1]['is_first']
