"""Checkpoints: round trips, crashes at any moment, and errors that help."""

import json
import pickle
import resource
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest
from saved_parts import Box

from embodied.core.checkpoint import Checkpoint, load_part, load_part_and_step
from embodied.core.errors import CheckpointError


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


# Bit rot


def flip(path, index):
    data = bytearray(path.read_bytes())
    data[index] ^= 0x10
    path.write_bytes(data)


def loaded(folder, *names):
    """Values of the parts, and the events about damage."""
    events = []
    boxes = {name: Box() for name in names}
    note = lambda event, **details: events.append((event, details))
    checkpoint = Checkpoint(folder, note=note)
    for name, box in boxes.items():
        checkpoint.add(name, box)
    checkpoint.load()
    return [box.value for box in boxes.values()], events


def test_a_flipped_byte_anywhere_in_a_part_is_noticed(tmp_path):
    saved(tmp_path, x=np.arange(1000))
    (path,) = tmp_path.glob('*/x.pkl')
    whole = path.read_bytes()
    for index in range(0, len(whole), 97):
        flip(path, index)
        with pytest.raises(
            CheckpointError, match=r'x\.pkl does not match its checksum'
        ):
            load_part(tmp_path, 'x')
        path.write_bytes(whole)
    np.testing.assert_array_equal(load_part(tmp_path, 'x'), np.arange(1000))


def test_a_flipped_byte_anywhere_in_a_manifest_is_noticed(tmp_path):
    saved(tmp_path, step=123, x=1)
    (path,) = tmp_path.glob('*/manifest.json')
    whole, noticed = path.read_bytes(), 0
    for index in range(len(whole)):
        flip(path, index)
        try:
            found = load_part_and_step(tmp_path, 'x')
        except CheckpointError as error:
            assert 'manifest.json' in str(error)
            noticed += 1
        else:  # of a space between two words, which means nothing
            assert found == (1, 123)
        path.write_bytes(whole)
    assert noticed > 0.8 * len(whole)


@pytest.mark.parametrize('part', ['a', 'b'])
def test_the_newest_whole_save_is_used_instead_of_a_damaged_one(tmp_path, part, capsys):
    for step in range(3):
        saved(tmp_path, step=step, keep=3, a=f'a{step}', b=f'b{step}')
    damaged = tmp_path / folders(tmp_path)[-1] / f'{part}.pkl'
    flip(damaged, 3)
    values, events = loaded(tmp_path, 'a', 'b')
    assert values == ['a1', 'b1']
    ((event, details),) = events
    assert event == 'damaged' and details['used'] == folders(tmp_path)[1]
    assert details['file'] == str(damaged.parent)
    reason = f'{part}.pkl does not match its checksum in manifest.json'
    assert details['reason'] == reason
    message = capsys.readouterr().err
    assert str(damaged.parent) in message and folders(tmp_path)[1] in message
    # From now on it is the one that counts, without another word.
    assert loaded(tmp_path, 'a', 'b') == (['a1', 'b1'], [])


def test_a_part_and_its_step_come_from_the_same_save(tmp_path):
    for step in range(2):
        saved(tmp_path / 'ckpt', step=step, keep=2, agent=f'agent{step}', x=step)
    (tmp_path / 'ckpt' / folders(tmp_path / 'ckpt')[1] / 'agent.pkl').write_bytes(b'')
    assert load_part_and_step(tmp_path, 'agent') == ('agent0', 0)


def test_all_damaged_files_are_named_if_no_save_is_whole(tmp_path):
    for step in range(2):
        saved(tmp_path, step=step, keep=2, x=list(range(100)))
    older, newer = folders(tmp_path)
    flip(tmp_path / newer / 'x.pkl', 30)
    (tmp_path / older / 'manifest.json').write_text('')
    with pytest.raises(CheckpointError) as info:
        loaded(tmp_path, 'x')
    message = str(info.value)
    assert f'{newer} is broken: x.pkl does not match' in message
    assert f'{older} is broken: manifest.json' in message
    assert folders(tmp_path) == [older, newer]


def test_a_chosen_save_that_is_damaged_is_not_replaced_by_another(tmp_path):
    for step in range(2):
        saved(tmp_path, step=step, keep=2, x=list(range(100)))
    older, newer = folders(tmp_path)
    flip(tmp_path / newer / 'x.pkl', 30)
    with pytest.raises(CheckpointError, match='checksum'):
        load_part(tmp_path / newer, 'x')


def test_saves_without_checksums_are_loaded(tmp_path):
    saved(tmp_path, step=4, x='old')
    (path,) = tmp_path.glob('*/manifest.json')
    manifest = json.loads(path.read_text())
    kept = ('format', 'step', 'parts', 'versions')
    path.write_text(json.dumps({name: manifest[name] for name in kept}))
    assert load_part_and_step(tmp_path, 'x') == ('old', 4)


def test_damage_that_only_unpickling_shows_leads_to_the_save_before(tmp_path):
    for step in range(2):
        saved(tmp_path, step=step, keep=2, x=list(range(100)))
    newest = tmp_path / folders(tmp_path)[1]
    manifest = json.loads((newest / 'manifest.json').read_text())
    kept = {name: manifest[name] for name in ('format', 'step', 'parts', 'versions')}
    (newest / 'manifest.json').write_text(json.dumps(kept))
    scramble(newest)
    values, events = loaded(tmp_path, 'x')
    assert values == [list(range(100))] and len(events) == 1


# Which save counts


@pytest.mark.parametrize(
    'damage',
    [
        lambda latest: latest.unlink(),
        lambda latest: latest.write_text(''),
        lambda latest: latest.write_bytes(b'\xff\x00\xfe/../..'),
        lambda latest: latest.write_text('000000000001-20200101T000000.000000'),
        lambda latest: latest.write_text('/'),
    ],
)
def test_without_a_name_of_the_latest_the_newest_whole_save_counts(tmp_path, damage):
    for step in range(3):
        saved(tmp_path, step=step, keep=3, x=step)
    newest = folders(tmp_path)[-1]
    flip(tmp_path / newest / 'x.pkl', 3)
    damage(tmp_path / 'latest')
    assert Checkpoint(tmp_path).exists()
    values, events = loaded(tmp_path, 'x')
    assert values == [1]
    named = [details['file'] for _, details in events]
    assert named == [str(tmp_path / 'latest'), str(tmp_path / newest)]
    assert (tmp_path / 'latest').read_text() == folders(tmp_path)[1]


def test_nothing_is_removed_while_it_is_unclear_which_save_counts(tmp_path):
    for step in range(2):
        saved(tmp_path, step=step, keep=2, x=step)
    before = folders(tmp_path)
    (tmp_path / 'latest').unlink()
    checkpoint = saved(tmp_path, step=0, x='fresh')
    assert folders(tmp_path) == sorted([*before, checkpoint.version])


def test_nothing_is_removed_if_it_cannot_be_known_what_others_refer_to(tmp_path):
    first = saved(tmp_path, step=1, x=1).version

    def unknown():
        raise CheckpointError('unreadable')

    checkpoint = Checkpoint(tmp_path, pinned=unknown)
    checkpoint.add('x', Box(2))
    checkpoint.save(2)
    checkpoint.wait()
    assert folders(tmp_path) == [first, checkpoint.version]


def test_damaged_saves_go_before_whole_ones(tmp_path):
    for step in range(3):
        saved(tmp_path, step=step, keep=3, x=list(range(step, 100)))
    names = folders(tmp_path)
    flip(tmp_path / names[2] / 'x.pkl', 30)
    checkpoint = Checkpoint(tmp_path, keep=2)
    checkpoint.add('x', Box())
    checkpoint.load()
    checkpoint.save(9)
    checkpoint.wait()
    assert folders(tmp_path) == [names[1], checkpoint.version]


# Full disks


def test_what_does_not_fit_leaves_nothing_behind(tmp_path):
    saved(tmp_path, x='good')
    before = sorted(tmp_path.rglob('*'))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        checkpoint = Checkpoint(tmp_path)
        checkpoint.add('x', Box(np.zeros(100_000)))
        checkpoint.save(2)
        with pytest.raises(CheckpointError, match='File too large'):
            checkpoint.wait()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert sorted(tmp_path.rglob('*')) == before
    assert load_part(tmp_path, 'x') == 'good'
