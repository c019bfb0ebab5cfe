"""Replay after crashes: what is dropped, reads as zeros or goes stale."""

import logging
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from replay_parts import add, kill, make, stored_rows

from embodied.replay.recovery.folder import list_segments
from embodied.replay.storage.schema import VERSION


def test_a_row_without_its_commit_is_not_served(tmp_path):
    replay = make(tmp_path)
    add(replay, range(12))
    segment = replay._store.allocator.segments[0]
    # Row 12 of stream 0: written, but the process dies before the commit.
    segment.columns['x'][2, 4] = 777
    assert segment.table['committed'][2] == 4
    kill(replay)
    again = make(tmp_path)
    assert 777 not in again.sample(500)['x']


def test_a_torn_latent_reads_as_zeros_until_it_is_written_again(tmp_path):
    replay = make(tmp_path, length=1)
    add(replay, range(6), workers=(0,))
    segment = replay._store.allocator.segments[0]
    segment.columns[VERSION.name][0, 3] += 1
    kill(replay)
    again = make(tmp_path, length=1)
    batch = again.sample(200)
    expected = np.where(batch['x'] == 3, 0, batch['x'])
    assert (batch['dyn/deter'][..., 0] == expected).all()
    again.update({'stepid': batch['stepid'], 'dyn/deter': batch['dyn/deter'] + 9})
    batch = again.sample(200)
    assert (batch['dyn/deter'][batch['x'] == 3] == 9).all()


def test_after_a_loss_of_power_only_synced_rows_count(tmp_path):
    replay = make(tmp_path)
    add(replay, range(13))
    replay.sync()
    add(replay, range(13, 30))
    for segment in replay._store.allocator.segments.values():
        segment.header['boot'] = b'before the power went'
    kill(replay)
    again = make(tmp_path)
    assert stored_rows(tmp_path) == {
        w: [1000 * w + n for n in range(13)] for w in (0, 1)
    }
    assert (again.sample(50)['dyn/deter'] == 0).all()
    add(again, range(13, 30))
    assert len(again) == 2 * 26


@pytest.mark.parametrize(('save_wait', 'kept'), [(True, 30), (False, 0)])
def test_a_save_can_wait_until_its_steps_survive_a_loss_of_power(
    tmp_path, save_wait, kept
):
    replay = make(tmp_path, save_wait=save_wait)
    add(replay, range(30))
    replay.save()
    for segment in replay._store.allocator.segments.values():
        segment.header['boot'] = b'before the power went'
    kill(replay)
    make(tmp_path)
    assert sum(len(rows) for rows in stored_rows(tmp_path).values()) == 2 * kept


def test_after_a_clean_close_a_reboot_costs_nothing(tmp_path):
    replay = make(tmp_path)
    add(replay, range(13))
    replay.close()
    for segment in replay._store.allocator.segments.values():
        segment.header['boot'] = b'before the reboot'
    again = make(tmp_path)
    assert len(again) == 18
    batch = again.sample(100)
    assert (batch['dyn/deter'][..., 0] == batch['x'] % 1000).all()


def test_a_reopened_folder_that_loses_power_is_not_taken_for_a_closed_one(tmp_path):
    replay = make(tmp_path)
    add(replay, range(13))
    replay.close()
    again = make(tmp_path)
    add(again, range(13, 30))
    # The header and the metadata are older than the rows: the disk was late.
    for segment in again._store.allocator.segments.values():
        segment.header['boot'] = b'before the power went'
    kill(again)
    make(tmp_path)
    assert stored_rows(tmp_path) == {
        w: [1000 * w + n for n in range(13)] for w in (0, 1)
    }


@pytest.mark.parametrize(
    'damage', ['truncated', 'garbage', 'empty', 'header', 'foreign']
)
def test_broken_files_go_to_the_quarantine_and_the_rest_loads(tmp_path, damage, caplog):
    replay = make(tmp_path / 'a', capacity=200)
    add(replay, range(80))
    replay.close()
    paths = list_segments(tmp_path / 'a')
    victim = paths[len(paths) // 2]
    if damage == 'foreign':
        other = make(tmp_path / 'b', capacity=200)
        add(other, range(80))
        victim.write_bytes(list_segments(tmp_path / 'b')[0].read_bytes())
    else:
        data = victim.read_bytes()
        victim.write_bytes(
            {
                'truncated': data[: len(data) // 2],
                'garbage': np.random.default_rng(0).bytes(len(data)),
                'empty': b'',
                'header': data[:100] + b'\xff' * 20 + data[120:],
            }[damage]
        )
    with caplog.at_level(logging.WARNING):
        again = make(tmp_path / 'a', capacity=200)
    assert f'{victim}: ' in caplog.text and 'steps affected: ' in caplog.text
    assert not victim.exists() and (tmp_path / 'a/quarantine' / victim.name).exists()
    assert 0 < len(again) < 2 * 76
    batch = again.sample(500)
    assert (np.diff(batch['x'], axis=1) == 1).all()
    ids = {row.tobytes() for row in batch['stepid'].reshape(-1, 20)}
    add(again, range(80, 120))
    assert len(stored_rows(tmp_path / 'a')) == 2
    fresh = again.sample(500)
    new = fresh['stepid'][fresh['x'] % 1000 >= 80]
    assert not ids & {row.tobytes() for row in new}


DYING = """
    import os, sys
    from embodied.replay import Replay

    def hook(event, args, renames=[]):
        if event == 'os.rename':
            renames.append(args)
            if len(renames) == {count}:
                os._exit(0)

    sys.addaudithook(hook)
    Replay(5, 200, {path!r}, chunksize=8, sync_every=0)
    print('survived')
"""


def test_ids_of_lost_steps_stay_stale_wherever_the_recovery_dies(tmp_path):
    for count in range(1, 9):
        path = tmp_path / str(count)
        replay = make(path, capacity=200)
        add(replay, range(50))
        old = replay.sample(300)
        replay.close()
        list_segments(path)[-1].write_bytes(b'')  # the newest ids are free again
        script = textwrap.dedent(DYING.format(count=count, path=str(path)))
        command = [sys.executable, '-c', script]
        result = subprocess.run(command, capture_output=True, text=True, check=True)
        again = make(path, capacity=200)
        add(again, range(100, 150))
        names = {row.tobytes(): x for row, x in rows_of(old)}
        for row, x in rows_of(again.sample(600)):
            assert names.get(row.tobytes(), x) == x
        if result.stdout == 'survived\n':
            return
    raise AssertionError('opening a folder renames more often than expected')


def rows_of(batch):
    return zip(
        batch['stepid'].reshape(-1, 20), batch['x'].ravel().tolist(), strict=True
    )


@pytest.mark.parametrize('text', [None, '', '{', '[]', '{"format": 1}', '\0' * 80])
def test_lost_or_broken_metadata_is_replaced(tmp_path, text, caplog):
    replay = make(tmp_path)
    add(replay, range(20))
    ids = {row.tobytes() for row, _ in rows_of(replay.sample(100))}
    kill(replay)
    metadata = tmp_path / 'replay.json'
    metadata.unlink()
    if text is not None:
        metadata.write_text(text)
    again = make(tmp_path)
    assert len(again) == 2 * 16
    assert not ids & {row.tobytes() for row, _ in rows_of(again.sample(100))}
    if text is not None:
        assert f'{metadata}: it ' in caplog.text and 'moved to quar' in caplog.text


def test_a_copy_of_a_segment_goes_to_the_quarantine(tmp_path, caplog):
    replay = make(tmp_path)
    add(replay, range(20))
    replay.close()
    path = list_segments(tmp_path)[0]
    path.with_name(f'{path.stem} (copy).seg').write_bytes(path.read_bytes())
    again = make(tmp_path)
    assert len(again) == 2 * 16 and 'it is a copy of number 0' in caplog.text


def test_drafts_of_segments_are_deleted(tmp_path):
    (tmp_path / '00000007.new').write_bytes(bytes(100))
    make(tmp_path)
    assert not list(tmp_path.glob('*.new'))


@pytest.mark.parametrize('latents', ['disk', 'ram'])
def test_rows_that_are_fetched_ahead_from_the_disk_are_the_same(tmp_path, latents):
    replay = make(tmp_path, length=20, latents=latents)
    add(replay, range(100))
    replay._reader._cold = 1
    batch = replay.sample(16)
    assert (np.diff(batch['x'], axis=1) == 1).all()
    assert (batch['dyn/deter'][..., 0] == batch['x'] % 1000).all()
    assert not replay._reader._cold  # everything was in memory


def lose_machine(replay):
    """The node goes down; the folder, on a shared disk, is opened by another one."""
    for segment in replay._store.allocator.segments.values():
        segment.header['boot'] = b'of another machine'
    kill(replay)


@pytest.mark.parametrize(('sync', 'lost'), [('timer', 2 * 17), ('ack', 0)])
def test_a_machine_takes_only_steps_with_it_that_were_not_synced(tmp_path, sync, lost):
    replay = make(tmp_path, sync=sync, sync_every=0)
    add(replay, range(13))
    replay.sync()
    add(replay, range(13, 30))
    lose_machine(replay)
    again = make(tmp_path)
    assert again.lost == lost
    assert sum(map(len, stored_rows(tmp_path).values())) == 2 * 30 - lost


def test_streams_get_other_names_after_a_loss_and_only_then(tmp_path):
    replay = make(tmp_path)
    salts = [replay.salt]
    add(replay, range(9))
    kill(replay)
    replay = make(tmp_path)
    salts.append(replay.salt)
    add(replay, range(9, 12))
    lose_machine(replay)
    salts.append(make(tmp_path).salt)
    assert salts[0] == salts[1] != salts[2]
    assert make(tmp_path / 'synced', sync='ack').salt == 0


def test_chunks_that_are_evicted_with_their_successors_are_no_gap(tmp_path):
    # Two chunks per segment. The last row of the rare stream keeps the first segment,
    # in which a chunk of the other is evicted; its successors are gone with theirs.
    replay = make(tmp_path, length=2, capacity=32, chunksize=2)
    add(replay, range(2), workers=(0,))
    add(replay, range(1), workers=(1,))
    add(replay, range(2, 7), workers=(0,))
    add(replay, range(1, 2), workers=(1,))
    kill(replay)
    replay = make(tmp_path, length=2, capacity=2, chunksize=2)
    assert stored_rows(tmp_path) == {0: [6], 1: [1001]}
    salt = replay.salt
    kill(replay)
    again = make(tmp_path, length=2, capacity=2, chunksize=2)
    assert again.take_damages() == []
    assert again.salt == salt
    add(again, range(7, 8), workers=(0,))
    add(again, range(8, 9), workers=(0,))
    assert again.sample(9)['x'].tolist() == [[7, 8]] * 9
