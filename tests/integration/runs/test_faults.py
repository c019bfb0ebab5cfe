"""Runs that are killed, stopped and interrupted at any moment, with real processes."""

import itertools
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import fault_parts
import numpy as np
import psutil
import pytest
from faults import FaultyRun, check_folder, check_ratio

from embodied.logging import read_records

pytestmark = pytest.mark.usefixtures('nothing_is_left')

ROLES = ('env0', 'eval0', 'logger', 'replay', 'agent')
RATIO = 64.0
SHARED_MEMORY = '/dev/shm/'


def finish(run):
    """Ctrl-C, a clean end, and no process left."""
    processes = run.processes()
    for process in processes:
        # Without names in it, nothing in shared memory can outlive its users.
        maps = Path(f'/proc/{process.pid}/maps').read_text()
        assert SHARED_MEMORY not in maps
    run.interrupt()
    assert run.wait() == 0, run.log
    _, alive = psutil.wait_procs(processes, timeout=10)
    assert alive == []


def test_each_role_comes_back_when_it_is_killed(tmp_path):
    flags = ('--eval_envs', '1', '--eval_every', '100')
    with FaultyRun(tmp_path, *flags) as run:
        for role in ROLES:
            run.await_running(role)
        run.await_steps()
        for role in ROLES:
            run.await_running(role, since=run.kill(role))
            run.await_steps()
        finish(run)
        restarted = {x['role'] for x in run.events() if x.get('state') == 'restarting'}
        assert restarted == set(ROLES)
    check_folder(tmp_path)
    check_ratio(tmp_path, RATIO)


def test_members_come_back_together_when_their_worker_is_killed(tmp_path):
    flags = ('--members', '2', '--envs_per_worker', '0')
    with FaultyRun(tmp_path, *flags) as run:
        # The first workers find out how many members there are.
        run.await_event(lambda event: event['event'] == 'members')
        count = len(run.events())
        pid = run.await_running('env2', since=count)
        run.await_running('env0', since=count)
        run.await_steps()
        known = set(fault_parts.acknowledged(tmp_path)['stream'].tolist())
        count = len(run.events())
        os.kill(pid, signal.SIGKILL)
        run.await_running('env2', since=count)
        run.await_new_streams(known, 2)
        run.await_steps()
        finish(run)
        names = {x['role'] for x in run.events() if x.get('state') == 'restarting'}
        assert names == {'env2'}
    found = check_folder(tmp_path)
    assert found.streams == 2 + 2 * 2  # two members of one worker, two of the other
    check_ratio(tmp_path, RATIO)


def test_environments_of_the_agent_begin_anew_with_it(tmp_path):
    with FaultyRun(tmp_path, '--device_steps', '8', '--train_ratio', '4') as run:
        run.await_steps(600)
        for role in ('agent', 'replay', 'agent'):
            run.await_running(role, since=run.kill(role))
            run.await_steps(600)
        finish(run)
        assert not any('env' in x.get('role', '') for x in run.events())
    found = check_folder(tmp_path)
    assert found.streams == 4 * 3  # of each environment one per agent process
    scores = read_records(tmp_path / 'scores.jsonl')
    assert {score['length'] for score in scores} == {fault_parts.EPISODE}
    assert {score['env'] for score in scores} == {0, 1, 2, 3}
    # Within the steps of one rollout, see docs/metrics.md.
    check_ratio(tmp_path, 4.0, rollout=8 * 4)


@pytest.mark.long
def test_everything_is_killed_at_any_moment_and_the_same_command_goes_on(tmp_path):
    rng = np.random.default_rng(int(os.environ.get('FAULT_SEED', '0')))
    flags = ('--steps', '3000', '--save_every', '0.3')
    stored = []
    for _ in range(5):
        with FaultyRun(tmp_path, *flags) as run:
            # Anything from the start of the processes to saves in full training.
            if rng.uniform() < 0.7:
                run.await_steps(int(rng.integers(1, 300)))
            threading.Event().wait(rng.uniform(0.0, 1.0))
        stored.append(run.stored)
    with FaultyRun(tmp_path, *flags) as run:
        assert run.wait() == 0, run.log
    found = check_folder(tmp_path)
    assert stored == sorted(stored) and found.acknowledged >= stored[-1]
    assert 3000 <= found.stored < 3000 + 4
    check_ratio(tmp_path, RATIO)


def test_stopped_roles_are_noticed_and_go_on(tmp_path):
    with FaultyRun(tmp_path) as run:
        stopped = {role: run.await_running(role) for role in ('agent', 'env2')}
        run.await_steps()
        for pid in stopped.values():
            os.kill(pid, signal.SIGSTOP)
        for role, pid in stopped.items():
            for event in ('stopped', 'continued'):
                run.await_event(lambda x, what=(event, role, pid): told(x) == what)
        run.await_steps()
        finish(run)
        assert not any(x.get('state') == 'restarting' for x in run.events())
    assert check_folder(tmp_path).streams == 4


def told(event):
    return event['event'], event.get('role'), event.get('pid')


@pytest.mark.long
@pytest.mark.parametrize('role', ['replay', 'logger', 'agent'])
def test_a_role_is_killed_while_the_last_updates_are_made(tmp_path, role):
    flags = ('--steps', '400', '--train_seconds', '0.5', '--train_ratio', '8')
    with FaultyRun(tmp_path, *flags) as run:
        run.await_steps(400)
        run.kill(role)
        assert run.wait() == 0, run.log
    found = check_folder(tmp_path)
    assert 400 <= found.stored < 400 + 4
    check_ratio(tmp_path, 8.0)


ENDLESS = '1e6'  # seconds


@pytest.mark.parametrize(
    ('phase', 'pause'),
    [
        ('start', ()),
        ('make', ('--pause', 'make', '--pause_seconds', ENDLESS)),
        ('compile', ('--pause', 'compile', '--pause_seconds', ENDLESS)),
        ('train', ()),
        ('save', ('--pause', 'save', '--pause_seconds', '2')),
    ],
)
def test_an_interruption_ends_the_run_in_time_at_any_phase(tmp_path, phase, pause):
    flags = ('--steps', '1200', '--save_every', '0.3')
    with FaultyRun(tmp_path, *flags, *pause, '--steps', '1e9', '--grace', '8') as run:
        if phase == 'start':
            run.await_event(lambda x: x.get('state') == 'starting')
        elif phase == 'train':
            run.await_steps(800)
        else:
            run.await_point()
        run.interrupt()
        # The timeout is for a busy machine; the launcher itself fails after the grace.
        assert run.wait() == 0, run.log
    saved = (tmp_path / 'ckpt' / 'manifest.json').exists()
    assert saved or phase in ('start', 'make')
    flags = ('--steps', str(max(1200, run.stored + 400)))
    with FaultyRun(tmp_path, *flags) as run:
        assert run.wait() == 0, run.log
    check_folder(tmp_path)
    check_ratio(tmp_path, RATIO)


@pytest.mark.long
@pytest.mark.parametrize('pair', [*itertools.combinations(ROLES, 2)], ids='-'.join)
def test_two_roles_are_killed_at_once(tmp_path, pair):
    flags = ('--eval_envs', '1', '--eval_every', '100')
    with FaultyRun(tmp_path, *flags) as run:
        for role in ROLES:
            run.await_running(role)
        for _ in range(3):
            run.await_steps()
            killed = {role: run.kill(role) for role in pair}
            for role, events in killed.items():
                run.await_running(role, since=events)
        run.await_steps()
        finish(run)
    check_folder(tmp_path)
    check_ratio(tmp_path, RATIO)


@pytest.mark.long
def test_chaos_for_some_minutes():
    bench = Path(__file__).parents[3] / 'bench' / 'chaos.py'
    command = [sys.executable, str(bench), '--minutes', '3', '--faults', '12']
    assert subprocess.run(command, check=False).returncode == 0
