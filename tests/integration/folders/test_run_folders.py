"""Folders of runs that are copied, lose a save, or lie on a disk that gets full."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from faults import FaultyRun, check_folder, check_ratio

from embodied.run.parallel.saves.manifest import Manifest

pytestmark = pytest.mark.usefixtures('nothing_is_left')

HERE = Path(__file__).parent
RATIO = 64.0
LONG = pytest.mark.long
NAMESPACE = ['unshare', '--user', '--map-root-user', '--mount']


def test_a_copy_of_a_live_run_is_a_run_of_its_own(tmp_path):
    with FaultyRun(tmp_path / 'original', '--pace', '0.01') as run:
        run.await_running('agent')
        run.await_steps(300)
        before = {x.pid for x in run.processes()}
        # Files come and go while it copies; that some are missing is part of the test.
        subprocess.run(['cp', '-r', tmp_path / 'original', tmp_path / 'copy'])
        assert (tmp_path / 'copy' / 'status.json').exists()
        steps = run.stored + 500
        with FaultyRun(tmp_path / 'copy', '--steps', str(steps)) as copy:
            assert copy.wait() == 0, copy.log
        run.await_steps(100)
        assert {x.pid for x in run.processes()} == before
        run.interrupt()
        assert run.wait() == 0, run.log
        assert not [x for x in run.events() if x.get('state') == 'restarting']
    check_folder(tmp_path / 'original')
    assert 'copied' in [x['event'] for x in copy.events()]


def damage(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize('role', ['agent', pytest.param('replay', marks=LONG)])
@pytest.mark.long
def test_a_run_goes_on_correctly_from_an_older_save_of_one_role(tmp_path, role):
    flags = ('--keep', '2', '--save_every', '0.2', '--steps')
    with FaultyRun(tmp_path, *flags, '1500') as run:
        assert run.wait() == 0, run.log
    before = Manifest.read(tmp_path / 'ckpt').counters
    saves = sorted((tmp_path / 'ckpt' / role).glob(f'*/{role}.pkl'))
    assert len(saves) > 1
    newest = tmp_path / 'ckpt' / role / 'latest'
    damage(newest.with_name(newest.read_text()) / f'{role}.pkl')
    with FaultyRun(tmp_path, *flags, '2200') as run:
        assert run.wait() == 0, run.log
        events = run.events()
    (damaged,) = (x for x in events if x['event'] == 'damaged')
    assert damaged['reason'].startswith(f'{role}.pkl does not match its checksum')
    (restored,) = (x for x in events if x['event'] == 'restored')
    assert (restored['updates'] < before['updates']) == (role == 'agent')
    assert 2200 <= check_folder(tmp_path).stored < 2200 + 4
    check_ratio(tmp_path, RATIO)


@pytest.mark.parametrize('script', ['parallel', pytest.param('train', marks=LONG)])
def test_a_full_disk_is_one_message_also_at_the_next_start(tmp_path, script):
    disk = tmp_path / 'disk'
    disk.mkdir()
    mount = ['mount', '-t', 'tmpfs', '-o', 'size=1m', 'none', str(disk)]
    if subprocess.run([*NAMESPACE, *mount], capture_output=True).returncode:
        pytest.skip('needs to mount a small tmpfs: run the tests as root')
    command = [sys.executable, str(HERE / 'full_disk.py'), str(disk), script]
    done = subprocess.run([*NAMESPACE, *command], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    filled, full, again, taken = map(json.loads, done.stdout.splitlines())
    for outcome in (filled, full, taken):
        text = outcome['text']
        assert outcome['code'] == 2, text
        assert text.count('dreamer: ') == 1 and 'Traceback' not in text, text
        assert 'No space left on device' in text and str(disk / 'run') in text, text
        assert 'room' in text or 'Free some space' in text, text
        assert outcome['state'] == ('failed' if script == 'parallel' else None)
    assert again['code'] == 0, again['text']
    # Logs, events and status share one note about a disk that another program fills.
    assert taken['text'].count('Cannot write') <= 1
