"""Checkpoints: round trips, crashes at any moment, and errors that help."""

import json
import pickle
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

from embodied.core.checkpoint import Checkpoint, load_part
from embodied.core.errors import CheckpointError


class Box:
    """A part that keeps one value and gives it away without a copy."""

    def __init__(self, value=None):
        self.value = value

    def save(self):
        return self.value

    def load(self, data):
        self.value = data


class Gate:
    """Data whose pickling waits until it is let through."""

    def __init__(self):
        self.reached = threading.Event()
        self.opened = threading.Event()

    def __reduce__(self):
        self.reached.set()
        self.opened.wait()
        return (str, ('passed',))


class Unwritable:
    def __reduce__(self):
        raise OSError('No space left on device')


def saved(folder, step=0, keep=1, **values):
    checkpoint = Checkpoint(folder, keep)
    for name, value in values.items():
        checkpoint.add(name, Box(value))
    checkpoint.save(step)
    checkpoint.wait()
    return checkpoint


def folders(path):
    return sorted(x.name for x in path.iterdir() if x.is_dir())


def test_a_fresh_object_gets_what_was_saved(tmp_path):
    saved(tmp_path, step=7, agent={'w': np.arange(3)}, replay=[1, 'x'])
    agent, replay = Box(), Box()
    other = Checkpoint(tmp_path)
    other.add('agent', agent)
    other.add('replay', replay)
    assert other.exists()
    assert other.load() == 7
    np.testing.assert_array_equal(agent.value['w'], [0, 1, 2])
    assert agent.value['w'].flags.writeable
    assert replay.value == [1, 'x']


def test_load_or_save_saves_first_and_loads_afterwards(tmp_path):
    first = Checkpoint(tmp_path / 'new' / 'ckpt')
    first.add('x', Box(1))
    assert not first.exists()
    assert first.load_or_save(5) == 5
    first.wait()
    second, box = Checkpoint(tmp_path / 'new' / 'ckpt'), Box(2)
    second.add('x', box)
    assert second.load_or_save(9) == 5
    assert box.value == 1


@pytest.mark.parametrize('frozen', [False, True])
def test_changes_while_writing_do_not_reach_the_file(tmp_path, frozen):
    gate, array = Gate(), np.zeros(1000)
    checkpoint = Checkpoint(tmp_path)
    checkpoint.add('gate', Box(gate), frozen=True)
    checkpoint.add('array', Box(array.copy() if frozen else array), frozen=frozen)
    checkpoint.save(1)
    assert gate.reached.wait(10)
    assert checkpoint.busy
    array += 1
    gate.opened.set()
    checkpoint.wait()
    assert not checkpoint.busy
    assert load_part(tmp_path, 'gate') == 'passed'
    np.testing.assert_array_equal(load_part(tmp_path, 'array'), np.zeros(1000))


@pytest.mark.parametrize('keep', [1, 2, 3])
def test_only_the_newest_are_kept(tmp_path, keep):
    for step in range(5):
        saved(tmp_path, step=step, keep=keep, x=step)
    steps = [int(name.split('-')[0]) for name in folders(tmp_path)]
    assert steps == list(range(5))[-keep:]
    assert load_part(tmp_path, 'x') == 4


def test_the_newest_wins_even_if_its_step_is_smaller(tmp_path):
    saved(tmp_path, step=100, x='old')
    saved(tmp_path, step=3, x='new')
    assert load_part(tmp_path, 'x') == 'new'
    assert len(folders(tmp_path)) == 1


def test_what_a_crash_left_is_cleared_away(tmp_path):
    (tmp_path / '.tmp-1').mkdir()
    (tmp_path / '.tmp-1' / 'x.pkl').write_bytes(b'half')
    (tmp_path / '.tmp-latest').write_bytes(b'hal')
    saved(tmp_path, x=1)
    assert len(list(tmp_path.iterdir())) == 2
    assert load_part(tmp_path, 'x') == 1


def test_manifest_tells_step_sizes_and_versions(tmp_path):
    saved(tmp_path, step=12, agent=np.zeros(10))
    folder = tmp_path / folders(tmp_path)[0]
    manifest = json.loads((folder / 'manifest.json').read_text())
    assert manifest['step'] == 12
    assert manifest['parts'] == {'agent': (folder / 'agent.pkl').stat().st_size}
    assert manifest['versions']['numpy'] == np.__version__


def test_a_part_is_found_through_run_folder_checkpoints_and_checkpoint(tmp_path):
    saved(tmp_path / 'ckpt', agent='A')
    one = tmp_path / 'ckpt' / folders(tmp_path / 'ckpt')[0]
    for path in (tmp_path, tmp_path / 'ckpt', one, str(one)):
        assert load_part(path, 'agent') == 'A'


def test_the_agent_of_a_distributed_run_is_found_among_its_roles(tmp_path):
    saved(tmp_path / 'ckpt' / 'agent', agent='A')
    saved(tmp_path / 'ckpt' / 'replay', replay='R')
    (tmp_path / 'ckpt' / 'manifest.json').write_text('{"saves": {}}')
    for path in (tmp_path, tmp_path / 'ckpt', tmp_path / 'ckpt' / 'agent'):
        assert load_part(path, 'agent') == 'A'


def test_checkpoints_of_others_in_the_same_folder_are_left_alone(tmp_path):
    saved(tmp_path / 'agent', agent='A')
    for step in range(3):
        saved(tmp_path, step=step, x=step)
    assert load_part(tmp_path / 'agent', 'agent') == 'A'


@pytest.mark.parametrize('again', ['save', 'wait'])
def test_a_failed_write_is_raised_by_the_next_call_and_keeps_the_last(tmp_path, again):
    saved(tmp_path, step=1, x='good')
    checkpoint = Checkpoint(tmp_path)
    checkpoint.add('x', Box(Unwritable()), frozen=True)
    checkpoint.save(2)
    with pytest.raises(CheckpointError, match='No space left on device'):
        getattr(checkpoint, again)()
    checkpoint.wait()
    assert load_part(tmp_path, 'x') == 'good'


def truncate(folder):
    data = (folder / 'x.pkl').read_bytes()
    (folder / 'x.pkl').write_bytes(data[: len(data) // 2])


def scramble(folder):
    size = (folder / 'x.pkl').stat().st_size
    (folder / 'x.pkl').write_bytes(b'?' * size)


@pytest.mark.parametrize(
    ('damage', 'message'),
    [
        (truncate, r'x\.pkl has \d+ bytes, expected \d+ bytes'),
        (scramble, r'is broken: x\.pkl'),
        (lambda folder: (folder / 'x.pkl').unlink(), r'x\.pkl is missing'),
        (lambda folder: (folder / 'manifest.json').unlink(), 'manifest.json cannot'),
        (lambda folder: (folder / 'manifest.json').write_text('{'), 'manifest.json'),
        (
            lambda folder: (folder / 'manifest.json').write_text(
                '{"format": 99, "step": 1, "parts": {}}'
            ),
            'has format 99, this version reads format 1',
        ),
        (lambda folder: folder.rename(folder.parent / 'moved'), 'is broken'),
    ],
)
def test_damage_is_reported_with_the_path(tmp_path, damage, message):
    saved(tmp_path, x=list(range(100)))
    folder = tmp_path / folders(tmp_path)[0]
    damage(folder)
    checkpoint = Checkpoint(tmp_path)
    checkpoint.add('x', Box())
    with pytest.raises(CheckpointError, match=message) as info:
        checkpoint.load()
    assert str(folder) in str(info.value)


def test_missing_parts_and_folders_are_named(tmp_path):
    saved(tmp_path, agent=1, driver=2)
    checkpoint = Checkpoint(tmp_path)
    checkpoint.add('replay', Box())
    with pytest.raises(CheckpointError, match=r"no part 'replay', only \['agent', "):
        checkpoint.load()
    with pytest.raises(CheckpointError, match='no checkpoint in .*nowhere'):
        load_part(tmp_path / 'nowhere', 'agent')


WRITER = """
import sys
from embodied.core.checkpoint import Checkpoint
class Part:
    value = 0
    def save(self): return [self.value] * 50_000
a, b = Part(), Part()
checkpoint = Checkpoint(sys.argv[1], keep=2)
checkpoint.add('a', a)
checkpoint.add('b', b, frozen=True)
start = int(sys.argv[2])
for step in range(start, start + 1_000_000):
    a.value = b.value = step
    checkpoint.save(step)
    if step > start:
        print(step - 1, flush=True)  # save() waits for the write before
"""


def test_killing_the_writer_at_any_moment_leaves_a_whole_checkpoint(tmp_path):
    rng, confirmed = np.random.default_rng(0), 0
    for _ in range(8):
        command = [sys.executable, '-c', WRITER, str(tmp_path), str(confirmed + 1)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            for _ in range(rng.integers(1, 4)):
                confirmed = int(child.stdout.readline())
            # A wait of less than one write, to hit another part of it each time.
            threading.Event().wait(rng.uniform(0, 0.02))
            child.send_signal(signal.SIGKILL)
            later = [int(x) for x in child.stdout.read().split()]
            confirmed = max([confirmed, *later])
        first, second = load_part(tmp_path, 'a'), load_part(tmp_path, 'b')
        assert first == second == [first[0]] * 50_000
        assert first[0] in (confirmed, confirmed + 1)
        confirmed = first[0]


def test_pickles_use_the_protocol_for_large_arrays(tmp_path):
    saved(tmp_path, x=np.zeros(10))
    folder = tmp_path / folders(tmp_path)[0]
    data = (folder / 'x.pkl').read_bytes()
    assert data[:2] == pickle.PROTO + bytes([5])
