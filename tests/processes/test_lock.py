"""Lock of a run's folder: one process at a time, and which one it is."""

import json
import os
import subprocess
import sys

import pytest

from embodied.core.errors import ConfigError
from embodied.processes.folder_lock import FolderLock

HOLD = """
import sys
from embodied.processes.folder_lock import FolderLock
with FolderLock(sys.argv[1]):
    print('held', flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path):
    """Another process that holds the lock."""
    process = subprocess.Popen(
        [sys.executable, '-c', HOLD, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    process.stdout.readline()
    yield process
    process.kill()
    process.communicate()


def test_a_second_process_is_refused_by_name(tmp_path, holder):
    message = f'in use by process {holder.pid} on .* since 2'
    with pytest.raises(ConfigError, match=message), FolderLock(tmp_path, nested=True):
        pass


def test_the_lock_of_a_killed_process_is_taken_over(tmp_path, holder):
    holder.kill()
    holder.wait()
    with FolderLock(tmp_path) as lock:
        assert lock.epoch == 2
    assert json.loads((tmp_path / 'lock').read_text())['pid'] == os.getpid()


def test_only_those_who_say_so_may_enter_again(tmp_path):
    with FolderLock(tmp_path) as outer:
        with FolderLock(tmp_path, nested=True) as inner:
            assert inner.epoch == outer.epoch == 1
        with pytest.raises(ConfigError, match='in use'), FolderLock(tmp_path):
            pass


@pytest.mark.parametrize(
    'content',
    [
        b'{"pid": 12',
        b'',
        b'[1]',
        b'7',
        b'\xff\xfe\x00',
        b'{"pid": "x", "epoch": 4}',
        b'{"pid": null, "epoch": 4}',
        b'{"pid": 1, "epoch": "four"}',
    ],
)
def test_a_damaged_record_is_as_good_as_none(tmp_path, content):
    (tmp_path / 'lock').write_bytes(content)
    with FolderLock(tmp_path) as lock:
        assert lock.epoch == 1
