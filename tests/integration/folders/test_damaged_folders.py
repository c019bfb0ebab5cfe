"""Finished runs whose folders were damaged go on, or are refused by one message."""

import hashlib
import json
import shutil
import subprocess
import sys

import pytest
from damage import harm

from embodied.replay.tools.inspection import Inspection

STEPS, MORE = 3000, 300
OPTIONS = {
    'configs': 'tiny',
    'random_agent': True,
    'task': 'dummy_mixed',
    'replay.chunksize': 64,
    'replay.size': 6000,
    'run.envs': 4,
    'run.envs_per_worker': 4,
    'run.eval_envs': 0,
    'run.save_every': 0.3,
    'run.max_restarts': 2,
}
SECONDS = 90  # for a run that goes on
QUICK = range(3)  # seeds
ALL = range(200)


def dreamer(logdir, steps, size=16):
    own = {'logdir': logdir, 'run.steps': steps, 'env.dummy.size': size}
    flags = [str(x) for k, v in {**OPTIONS, **own}.items() for x in (f'--{k}', v)]
    return subprocess.run(
        [sys.executable, '-m', 'dreamerv3', 'parallel', *flags],
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )


@pytest.fixture(scope='module')
def runs(tmp_path_factory):
    """A finished run, and one with other spaces, both left as they are."""
    folder = tmp_path_factory.mktemp('runs')
    for name, size in (('run', 16), ('donor', 12)):
        done = dreamer(folder / name, STEPS, size)
        assert done.returncode == 0, done.stderr
    return folder / 'run', folder / 'donor'


@pytest.fixture(scope='module')
def stored(runs):
    return rows_by_file(runs[0])


def rows_by_file(logdir):
    """Digest of every stored row by stream and serial, for each segment file."""
    found = {}
    folder = logdir / 'replay'
    for path in sorted(folder.glob('*.seg')):
        alone = folder.parent / 'alone' / path.stem
        alone.mkdir(parents=True)
        shutil.copy(path, alone)
        shutil.copy(folder / 'replay.json', alone)
        found[f'replay/{path.name}'] = rows(alone)
        shutil.rmtree(alone.parent)
    return found


def rows(folder):
    content = Inspection(folder)
    found = {}
    for stream, positions in content.streams():
        values = content.values(positions)
        columns = [values[name].reshape(len(positions), -1) for name in sorted(values)]
        for index, serial in enumerate(content.serials(positions)):
            digest = hashlib.blake2b()
            for column in columns:
                digest.update(column[index].tobytes())
            found[stream, int(serial)] = digest.digest()
    return found


def check_output(done, damage):
    """One message for a person, if any."""
    text = done.stdout + done.stderr
    assert done.returncode in (0, 2), text
    assert 'Traceback' not in text, text
    if done.returncode:
        assert text.count('dreamer: ') == 1, text
        assert any(name in text for name in damage.names), text


def check_rows(logdir, stored, damage):
    """What was stored in intact files is there, as it was."""
    found = rows(logdir / 'replay')
    for path, before in stored.items():
        if damage.hits(path):
            continue
        missing = [row for row in before if row not in found]
        changed = [row for row in before if found.get(row, before[row]) != before[row]]
        assert (missing, changed) == ([], []), path


def check_others(before, logdir, damage):
    """A run that was refused has left alone what it may still be saved from."""
    for path in before:
        if path.parts[0] in ('ckpt', 'replay') and not damage.hits(str(path)):
            assert (logdir / path).exists(), path


def damaged(runs, stored, tmp_path, seed):
    """Damages a copy of the run, starts it again and checks what comes of it."""
    run, donor = runs
    logdir = tmp_path / 'run'
    shutil.copytree(run, logdir)
    damage = harm(logdir, donor, seed)
    print(damage)
    before = [x.relative_to(logdir) for x in logdir.rglob('*') if x.is_file()]
    done = dreamer(logdir, STEPS + MORE)
    print(done.stdout, done.stderr)
    check_output(done, damage)
    if done.returncode:
        check_others(before, logdir, damage)
        return
    status = json.loads((logdir / 'status.json').read_text())
    assert status['state'] in ('done', 'finished'), status
    check_rows(logdir, stored, damage)


@pytest.mark.parametrize('seed', QUICK)
def test_a_damaged_run_goes_on_or_is_refused_by_one_message(
    runs, stored, tmp_path, seed
):
    damaged(runs, stored, tmp_path, seed)


@pytest.mark.long
@pytest.mark.parametrize('seed', ALL[len(QUICK) :])
def test_no_damage_among_many_loses_what_is_intact(runs, stored, tmp_path, seed):
    damaged(runs, stored, tmp_path, seed)
