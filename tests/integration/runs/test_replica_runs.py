"""Two launchers whose agents train together: they stop together, resume and part."""

import contextlib
import json
import os
import signal
import subprocess
import sys

import pytest
from watching import FolderWatch

from embodied.core.checkpoint import load_part
from embodied.logging import last_record, read_records
from embodied.transport import free_port

SECONDS = 600  # until something that should happen counts as hanging
pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(3 * SECONDS),
    pytest.mark.usefixtures('nothing_is_left'),
]
FLAGS = {
    'configs': 'debug',
    'task': 'gym_CartPole-v1',
    r'.*\.layers': 1,
    'run.debug': False,
    'run.eval_envs': 0,
    'run.report_every': 2,
    'run.save_every': 2,
    'jax.platform': 'cpu',
}


class Replicas:
    """Launchers on this machine, each for one replica; killed if they do not end."""

    def __init__(self, logdir, cache, count, steps):
        address = f'localhost:{free_port()}'
        own = {'logdir': logdir, 'jax.cache': cache, 'run.steps': steps}
        own |= {'replicas': count, 'jax.coordinator_address': address}
        flags = [f'--{k}={v}' for k, v in (FLAGS | own).items()]
        command = [sys.executable, '-m', 'dreamerv3', 'parallel', *flags]
        self.launchers = [
            subprocess.Popen([*command, f'--replica={i}']) for i in range(count)
        ]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for launcher in self.launchers:
            launcher.kill()
            launcher.wait()

    def await_end(self):
        assert [x.wait(SECONDS) for x in self.launchers] == [0] * len(self.launchers)


def saved(logdir):
    """Counters of all replicas of a run that has ended."""
    folders = [logdir, *sorted(logdir.glob('replica*'))]
    return [load_part(x / 'ckpt' / 'agent', 'learner') for x in folders]


def await_updates(logdir, count):
    def reached():
        record = last_record(logdir / 'metrics.jsonl', 'train/updates')
        return record and record['train/updates'] >= count

    with contextlib.closing(FolderWatch(logdir)) as watch:
        watch.await_that(reached, SECONDS)


def await_training_again(logdir):
    """After the agent was restored; what was compiled is noted after an update."""

    def happened():
        events = read_records(logdir / 'events.jsonl')
        names = [(x['event'], x.get('program')) for x in events]
        restored = ('restored', None)
        return (
            restored in names
            and ('compiled', 'train') in names[names.index(restored) :]
        )

    with contextlib.closing(FolderWatch(logdir)) as watch:
        watch.await_that(happened, SECONDS)


def test_replicas_stop_when_one_is_told_resume_and_go_on_as_one(tmp_path):
    logdir, cache = tmp_path / 'run', tmp_path / 'cache'
    logdir.mkdir()
    with Replicas(logdir, cache, 2, steps=1e6) as run:
        await_updates(logdir, 5)
        run.launchers[1].send_signal(signal.SIGTERM)
        run.await_end()
    one, two = saved(logdir)
    assert one['updates'] == two['updates'] >= 5
    assert one['trained'] == two['trained'] == 4 * one['updates']
    ends = [
        read_records(x / 'events.jsonl')[-2]['reason']
        for x in (logdir, logdir / 'replica1')
    ]
    assert ends == ['another replica', 'SIGTERM']

    more = max(one['steps'], two['steps']) + 50
    with Replicas(logdir, cache, 2, steps=more) as run:
        run.await_end()
    again, other = saved(logdir)
    assert again['updates'] == other['updates'] > one['updates']
    assert max(again['steps'], other['steps']) >= more

    with Replicas(logdir, cache, 1, steps=more + 50) as run:
        run.await_end()
    assert saved(logdir)[0]['updates'] > again['updates']


@pytest.mark.parametrize('dead', ['.', 'replica1'])
def test_all_start_again_when_the_agent_of_one_dies(tmp_path, dead):
    logdir = tmp_path / 'run'
    logdir.mkdir()
    with Replicas(logdir, tmp_path / 'cache', 2, steps=1e6) as run:
        await_updates(logdir, 5)
        status = json.loads((logdir / dead / 'status.json').read_text())
        os.kill(status['roles']['agent']['pid'], signal.SIGKILL)
        for folder in (logdir, logdir / 'replica1'):
            await_training_again(folder)
        run.launchers[0].send_signal(signal.SIGTERM)
        run.await_end()
    one, two = saved(logdir)
    assert one['updates'] == two['updates']
    assert one['trained'] == two['trained']


def test_replicas_of_an_agent_without_jax_end_together(tmp_path):
    address = f'localhost:{free_port()}'
    flags = {
        'configs': 'debug',
        'task': 'dummy_disc',
        'random_agent': True,
        'replicas': 2,
        'clock_addr': address,
        'run.debug': False,
        'run.eval_envs': 0,
        'run.steps': 400,
        'logdir': tmp_path,
    }
    command = [sys.executable, '-m', 'dreamerv3', 'parallel']
    command += [f'--{k}={v}' for k, v in flags.items()]
    with contextlib.ExitStack() as stack:
        launchers = []
        for replica in range(2):
            launcher = subprocess.Popen([*command, f'--replica={replica}'])
            stack.callback(launcher.wait)
            stack.callback(launcher.kill)
            launchers.append(launcher)
        assert [x.wait(SECONDS) for x in launchers] == [0, 0]
    updates = [x['updates'] for x in saved(tmp_path)]
    assert updates[0] == updates[1] > 0
