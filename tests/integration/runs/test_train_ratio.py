"""The train ratio of distributed runs: exact at the end, whatever was killed before."""

import numpy as np
import pytest
from fault_parts import BATCH, LENGTH
from faults import MINIMUM, FaultyRun, check_folder

from embodied.logging import read_records
from embodied.run.parallel.saves.manifest import Manifest

pytestmark = pytest.mark.usefixtures('nothing_is_left')

KILLED = ('replay', 'agent')
FLAGS = ('--pace', '0.005', '--save_every', '0.5')


def finish(run):
    """Steps and trained sequences after a run that has come to run.steps."""
    assert run.wait() == 0, run.log
    counters = Manifest.read(run.logdir / 'ckpt').counters
    return counters['steps'], counters['trained']


def whole_batches(earned):
    return int(earned // BATCH) * BATCH


def kill(run, role, more=100):
    """Kills the role after so many steps, and waits until it is back."""
    run.await_steps(more)
    run.await_running(role, since=run.kill(role))


@pytest.mark.long
def test_killed_roles_leave_exactly_the_updates_that_the_steps_have_earned(tmp_path):
    rng = np.random.default_rng(0)
    flags = (*FLAGS, '--steps', '2500', '--train_ratio', '8')
    with FaultyRun(tmp_path, *flags) as run:
        for role in ('agent', 'replay', 'logger', 'env0', 'env2'):
            run.await_running(role)
        for role in rng.permutation(KILLED * 2):
            kill(run, role, int(rng.integers(100, 400)))
        steps, trained = finish(run)
    assert trained == whole_batches((steps - MINIMUM) * 8 / LENGTH)
    events = [x['event'] for x in read_records(tmp_path / 'events.jsonl')]
    assert 'latents_dropped' not in events  # They have waited for replay.
    check_folder(tmp_path)


def test_another_ratio_holds_from_the_resume_on_whatever_is_killed_then(tmp_path):
    earned, before = 0.0, MINIMUM
    for goal, ratio in ((1000, 64), (1400, 4), (1800, 32)):
        flags = (*FLAGS, '--steps', str(goal), '--train_ratio', str(ratio))
        with FaultyRun(tmp_path, *flags) as run:
            if before > MINIMUM:
                for role in KILLED:
                    kill(run, role)
            steps, trained = finish(run)
        earned += (steps - before) * ratio / LENGTH
        before = steps
        assert trained == whole_batches(earned)
    events = read_records(tmp_path / 'events.jsonl')
    changes = [x['ratio'] for x in events if x['event'] == 'train_ratio']
    assert changes == [4, 32]
    check_folder(tmp_path)


@pytest.mark.long
def test_another_ratio_is_known_when_everything_dies_before_the_next_save(tmp_path):
    flags = ('--pace', '0.005', '--steps', '600', '--train_ratio', '16')
    with FaultyRun(tmp_path, *flags) as run:
        first, trained = finish(run)
    assert trained == whole_batches((first - MINIMUM) * 16 / LENGTH)
    flags = ('--pace', '0.005', '--steps', '1200', '--train_ratio', '64')
    with FaultyRun(tmp_path, *flags, '--save_every', '0') as run:
        run.await_steps()
    with FaultyRun(tmp_path, *flags) as run:
        steps, trained = finish(run)
    earned = (first - MINIMUM) * 16 / LENGTH + (steps - first) * 64 / LENGTH
    assert trained == whole_batches(earned)
    check_folder(tmp_path)
