"""Replay folders with damaged files: what is noticed, reported, kept and served."""

import json
import shutil
import zlib

import numpy as np
import pytest
from replay_parts import add, kill, make

from dreamerv3.commands.replay_tools import main
from embodied import selectors
from embodied.replay.recovery.folder import list_segments
from embodied.replay.storage.schema import ORDER
from embodied.replay.storage.segment import HEADER, Segment
from embodied.replay.tools.inspection import Inspection

CHUNK = 8  # steps, as `make` has it


def fill(path, steps=80, **kwargs):
    replay = make(path, capacity=200, **kwargs)
    add(replay, range(steps), serials=True)
    replay.close()
    return list_segments(path)


def opened(path, **kwargs):
    """The replay, and what it found to be wrong."""
    replay = make(path, capacity=200, **kwargs)
    return replay, replay.take_damages()


def unbroken(replay):
    """Whether no sequence reaches over a gap."""
    return (np.diff(replay.sample(500)['x'], axis=1) == 1).all()


def rows_of_files(path):
    """Stored values of `x` by file."""
    found = {}
    for file in list_segments(path):
        segment = Segment.open(file, writable=False)
        found[file] = [
            int(x)
            for slot, rows in enumerate(segment.table['committed'])
            for x in segment.columns['x'][slot, segment.table['first'][slot] : rows]
        ]
    return found


def all_rows(path):
    look = Inspection(path)
    parts = [look.read('x', positions) for _, positions in look.streams()]
    return sorted(np.concatenate(parts).tolist())


def chunk_of(path, slot=0):
    return Segment.open(path, writable=True).table[slot : slot + 1]


def spoil(path, slot=0):
    """Inverts bits of a column, as a bad disk does."""
    column = Segment.open(path, writable=True).columns['x']
    column[slot, 3] = ~column[slot, 3]


@pytest.mark.parametrize('which', [0, 3, -1])
@pytest.mark.parametrize('selector', [selectors.Uniform, selectors.Prioritized])
def test_a_deleted_segment_is_reported_and_no_sequence_reaches_over_it(
    tmp_path, which, selector, caplog
):
    files = fill(tmp_path, sync='ack', online=True)
    rows = rows_of_files(tmp_path)
    victim = files[which]
    victim.unlink()
    # With `ack` the streams keep their names, so that they go on behind the gap.
    kwargs = {'sync': 'ack', 'online': True, 'selector': selector()}
    replay, (damage,) = opened(tmp_path, **kwargs)
    assert (damage.path, damage.steps) == (victim, len(rows[victim]))
    assert f'{victim}: it is missing' in caplog.text
    assert unbroken(replay)
    add(replay, range(75, 90), serials=True)
    assert unbroken(replay)
    left = {x for file, values in rows.items() if file != victim for x in values}
    assert left <= set(all_rows(tmp_path))
    assert {1000 * w + n for w in (0, 1) for n in range(80, 90)} <= set(
        all_rows(tmp_path)
    )
    replay.close()
    assert not opened(tmp_path)[1]


def test_without_its_segments_a_folder_starts_again(tmp_path):
    for file in fill(tmp_path):
        file.unlink()
    replay, damages = opened(tmp_path)
    assert sum(x.steps for x in damages) == 2 * 80 and replay.inserts == 0
    add(replay, range(9), serials=True)
    assert unbroken(replay)
    assert list_segments(tmp_path)[0].name == '00000007.seg'


def test_a_deleted_segment_of_a_folder_without_inventory_is_noticed(tmp_path):
    files = fill(tmp_path, sync='ack')
    (tmp_path / 'segments.json').unlink()
    files[-1].unlink()
    replay, damages = opened(tmp_path, sync='ack')
    assert {x.reason for x in damages} == {'the chunk that follows it is missing'}
    add(replay, range(75, 90), serials=True)
    assert unbroken(replay)
    replay.close()
    assert not opened(tmp_path)[1]


def test_evicted_segments_are_not_missing(tmp_path):
    replay = make(tmp_path, capacity=60)
    add(replay, range(100))
    kill(replay)
    again = make(tmp_path, capacity=60)
    assert not again.take_damages()


def test_foreign_segments_go_to_the_quarantine_and_cost_nothing(tmp_path):
    fill(tmp_path / 'a')
    before, ids = all_rows(tmp_path / 'a'), (tmp_path / 'a/replay.json').read_text()
    theirs = fill(tmp_path / 'b')
    shutil.copy(theirs[0], tmp_path / 'a/00000050.seg')
    shutil.copy(theirs[1], tmp_path / 'a/other.seg')
    (tmp_path / 'a/00000099.seg').write_bytes(b'no segment')
    replay, damages = opened(tmp_path / 'a')
    names = ['00000050.seg', '00000099.seg', 'other.seg']
    assert sorted(x.path.name for x in damages) == names
    assert [x.steps for x in damages] == [0, 0, 0]
    assert sorted(x.name for x in (tmp_path / 'a/quarantine').iterdir()) == names
    assert all_rows(tmp_path / 'a') == before
    replay.close()
    assert (tmp_path / 'a/replay.json').read_text() == ids


def test_swapped_segments_lose_nothing(tmp_path):
    files = fill(tmp_path)
    before = all_rows(tmp_path)
    content = files[1].read_bytes(), files[4].read_bytes()
    files[1].write_bytes(content[1])
    files[4].write_bytes(content[0])
    replay, damages = opened(tmp_path)
    assert {x.path for x in damages} == {files[1], files[4]}
    assert all_rows(tmp_path) == before and list_segments(tmp_path) == files
    assert unbroken(replay) and len(replay) == 2 * 76
    assert files[1].read_bytes()[: HEADER.itemsize] != content[1][: HEADER.itemsize]


@pytest.mark.parametrize('name', ['replay.json', 'segments.json'])
@pytest.mark.parametrize('how', ['foreign', 'garbage', 'empty', 'deleted', 'short'])
def test_damaged_descriptions_of_the_folder_cost_no_steps(tmp_path, name, how):
    fill(tmp_path / 'a'), fill(tmp_path / 'b')
    before, path = all_rows(tmp_path / 'a'), tmp_path / 'a' / name
    if how == 'deleted':
        path.unlink()
    elif how == 'short':
        data = json.loads(path.read_text())
        path.write_text(json.dumps({**data, 'store': 'ab', 'prefix': 'ab'}))
    else:
        other = (tmp_path / 'b' / name).read_bytes()
        path.write_bytes({'foreign': other, 'garbage': b'\xff\0', 'empty': b''}[how])
    replay, damages = opened(tmp_path / 'a')
    assert {x.path for x in damages} <= {path}
    assert all_rows(tmp_path / 'a') == before and replay.inserts == 2 * 80
    assert unbroken(replay) and len(replay) == 2 * 76
    replay.close()
    assert not opened(tmp_path / 'a')[1]


def test_a_card_of_another_replay_is_recognized_without_inventory(tmp_path):
    fill(tmp_path / 'a'), fill(tmp_path / 'b')
    before = all_rows(tmp_path / 'a')
    (tmp_path / 'a/segments.json').unlink()
    shutil.copy(tmp_path / 'b/replay.json', tmp_path / 'a')
    _, (damage,) = opened(tmp_path / 'a')
    assert damage.path.name == 'replay.json' and all_rows(tmp_path / 'a') == before


@pytest.mark.parametrize(
    'field, value',
    [
        ('ordinal', 10**12),
        ('stream', 77),
        ('prev', 3),
        ('prev', 10**12),
        ('crc', 1),
        ('committed', 10**9),
        ('committed', 2),
        ('first', 10**9),
        ('durable', 10**9),
        ('next', 10**12),
        ('next', 0),
        ('seal', 1),
        ('numbers', 1),
        ('values', 1),
        ('retired', 1),
    ],
)
@pytest.mark.parametrize('sealed', [True, False])
def test_damaged_records_of_chunks_cost_at_most_the_chunk(
    tmp_path, field, value, sealed
):
    files = fill(tmp_path)
    before = set(all_rows(tmp_path))
    own = set(range(24, 32)) | set(range(1024, 1032)) | set(range(32, 40))
    record = chunk_of(files[2])
    if not sealed:
        record['seal'] = 0
    record[field] = value
    replay, damages = opened(tmp_path)
    assert {x.path for x in damages} <= {files[2]}
    assert before - set(all_rows(tmp_path)) <= own
    assert unbroken(replay)
    add(replay, range(80, 90), serials=True)
    assert unbroken(replay) and replay.inserts == 2 * 90
    replay.close()
    assert not opened(tmp_path)[1]


def test_a_commit_counter_is_restored_from_the_checksum(tmp_path):
    files = fill(tmp_path)
    before = all_rows(tmp_path)
    chunk_of(files[2])['committed'] = 2
    _, (damage,) = opened(tmp_path)
    assert damage.steps == 0 and all_rows(tmp_path) == before


def test_an_absurd_row_number_does_not_count_as_steps_of_the_run(tmp_path):
    files = fill(tmp_path, 77)
    segment = Segment.open(files[-1], writable=True)
    slot = int(np.flatnonzero(segment.table['committed'] == 77 % CHUNK)[-1])
    segment.columns[ORDER.name][slot, 77 % CHUNK - 1] += 1 << 40
    replay, (damage,) = opened(tmp_path)
    assert (damage.path, damage.chunk, damage.steps) == (files[-1], slot, 1)
    assert replay.inserts <= 2 * 77
    assert len(all_rows(tmp_path)) == 2 * 77 - 1


def test_other_bytes_than_text_in_a_header_are_no_error(tmp_path):
    for file in fill(tmp_path):
        Segment.open(file, writable=True).header['boot'] = b'\xff\xfe\x80'
    replay, damages = opened(tmp_path)
    assert not damages and len(replay) == 2 * 76


def test_a_description_that_does_not_parse_is_named(tmp_path):
    files = fill(tmp_path)
    data = bytearray(files[0].read_bytes())
    head = np.frombuffer(data, HEADER, 1)
    head['bytes'], head['crc'] = 9, zlib.crc32(b'not JSON!')
    data[HEADER.itemsize : HEADER.itemsize + 9] = b'not JSON!'
    files[0].write_bytes(data)
    replay, (damage,) = opened(tmp_path)
    assert damage.path == files[0] and 'cannot be read' in damage.reason
    assert unbroken(replay)


def test_check_names_missing_foreign_and_swapped_files(tmp_path, capsys):
    files = fill(tmp_path / 'a')
    shutil.copy(fill(tmp_path / 'b')[0], tmp_path / 'a/00000050.seg')
    files[3].unlink()
    files[1].rename(tmp_path / 'a/00000060.seg')
    assert main(['check', str(tmp_path / 'a')]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert f'{files[3]}: it is missing (steps affected: 24)' in lines
    assert any('00000050.seg: it belongs to another replay' in x for x in lines)
    assert any('00000060.seg: it holds the segment 1' in x for x in lines)


def test_check_finds_changed_bits_in_full_chunks(tmp_path, capsys):
    files = fill(tmp_path)
    assert main(['check', str(tmp_path)]) == 0
    spoil(files[2], slot=1)
    assert main(['check', str(tmp_path)]) == 1
    line = f'{files[2]}, chunk 1: it fails its checksum (steps affected: {CHUNK})'
    assert line in capsys.readouterr().out


@pytest.mark.parametrize('selector', [selectors.Uniform, selectors.Prioritized])
def test_a_chunk_with_changed_bits_is_reported_once_and_never_served_again(
    tmp_path, selector, caplog
):
    files = fill(tmp_path)
    before = set(all_rows(tmp_path))
    lost = set(Segment.open(files[2], writable=False).columns['x'][1].tolist())
    spoil(files[2], slot=1)
    replay = make(tmp_path, capacity=200, selector=selector())
    replay.finish_checks()
    (damage,) = replay.take_damages()
    assert (damage.path, damage.chunk, damage.steps) == (files[2], 1, CHUNK)
    assert caplog.text.count(f'{files[2]}, chunk 1: ') == 1
    batch = replay.sample(2000)
    assert (np.diff(batch['x'], axis=1) == 1).all()
    assert set(batch['x'].ravel().tolist()) == before - lost
    add(replay, range(80, 90), serials=True)
    assert unbroken(replay) and replay.inserts == 2 * 90
    replay.close()
    replay = make(tmp_path, capacity=200, selector=selector())
    assert not lost & set(replay.sample(2000)['x'].ravel().tolist())
    replay.finish_checks()
    assert not replay.take_damages()


def test_a_segment_of_which_nothing_is_left_goes_to_the_quarantine(tmp_path):
    files = fill(tmp_path)
    for slot in range(3):
        spoil(files[2], slot)
    replay = make(tmp_path, capacity=200)
    replay.finish_checks()
    assert len(replay.take_damages()) == 3
    assert (tmp_path / 'quarantine' / files[2].name).exists()
    assert not files[2].exists() and unbroken(replay)
    replay.close()
    assert not opened(tmp_path)[1]


def test_changed_bits_in_a_source_are_not_served(tmp_path):
    files = fill(tmp_path / 'a')
    spoil(files[2], slot=1)
    before = files[2].read_bytes()
    replay = make(tmp_path / 'b', load_from=tmp_path / 'a')
    replay.finish_checks()
    assert [x.path for x in replay.take_damages()] == [files[2]]
    assert unbroken(replay) and files[2].read_bytes() == before


def test_latents_and_priorities_have_no_part_in_the_checksums(tmp_path, capsys):
    fill(tmp_path)
    replay = make(tmp_path, capacity=200, selector=selectors.Prioritized())
    batch = replay.sample(50)
    latent = batch['dyn/deter'] + 1
    priority = np.ones((50, 5), np.float32)
    replay.update(
        {'stepid': batch['stepid'], 'dyn/deter': latent, 'priority': priority}
    )
    replay.finish_checks()
    assert not replay.take_damages()
    replay.close()
    assert main(['check', str(tmp_path)]) == 0
    assert ' 0 full chunks without checksum' in capsys.readouterr().out


@pytest.mark.parametrize('field', ['seal', 'numbers', 'values'])
def test_a_torn_checksum_does_not_condemn_a_chunk(tmp_path, field):
    files = fill(tmp_path)
    chunk_of(files[2])[field] ^= 5
    replay, damages = opened(tmp_path)
    replay.finish_checks()
    assert not damages + replay.take_damages() and len(replay) == 2 * 76


def test_full_chunks_without_checksums_are_counted_and_get_them(tmp_path, capsys):
    for file in fill(tmp_path):
        table = Segment.open(file, writable=True).table
        for field in ('seal', 'numbers', 'values'):  # as in version 0.1.0
            table[field] = 0
    assert main(['check', str(tmp_path)]) == 0
    assert ' 20 full chunks without checksum' in capsys.readouterr().out
    replay = make(tmp_path, capacity=200)
    replay.finish_checks()
    replay.close()
    assert main(['check', str(tmp_path)]) == 0
    assert ' 0 full chunks without checksum' in capsys.readouterr().out


def test_rows_lost_with_the_power_leave_no_checksum_behind(tmp_path):
    replay = make(tmp_path, capacity=200)
    add(replay, range(13), serials=True)
    replay.sync()
    add(replay, range(13, 40), serials=True)
    replay.finish_checks()
    for segment in replay._store.allocator.segments.values():
        segment.header['boot'] = b'before the power went'
    kill(replay)
    again, damages = opened(tmp_path)
    assert not damages and again.inserts == 26
    add(again, range(13, 40))
    again.close()
    assert main(['check', str(tmp_path)]) == 0
