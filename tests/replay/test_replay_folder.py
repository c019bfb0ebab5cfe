"""Replay in a folder: what is kept, shared, bounded and refused."""

import gc
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import numpy as np
import pytest
from replay_parts import add, kill, make, stored_rows

from embodied import selectors
from embodied.core.errors import ConfigError, ReplayError
from embodied.replay import Replay
from embodied.replay.recovery import folder
from embodied.replay.recovery.folder import file_system, list_segments
from embodied.replay.recovery.syncer import Syncer


def same_samples(left, right, count=5):
    for _ in range(count):
        one, two = left.sample(4), right.sample(4)
        for key in one:
            np.testing.assert_array_equal(one[key], two[key])


def test_everything_added_is_there_without_save_or_close(tmp_path):
    replay = make(tmp_path)
    add(replay, range(50))
    kill(replay)
    again = make(tmp_path)
    assert len(again) == 2 * 46 and again.inserts == 100
    starts = set(again.sample(2000)['x'][:, 0].tolist())
    assert starts == {1000 * w + n for w in (0, 1) for n in range(46)}
    add(again, range(50, 60))
    assert len(again) == 2 * 56  # the streams continue without a gap


@pytest.mark.parametrize(
    'selector',
    [
        selectors.Uniform,
        lambda: selectors.Prioritized(0.8, 0.5, np.inf, True),
        lambda: selectors.Recency(1 / np.arange(1, 60)),
        lambda: selectors.Mixture(
            {
                'u': selectors.Uniform(),
                'p': selectors.Prioritized(0.8, 0.5, np.inf, True),
                'r': selectors.Recency(1 / np.arange(1, 60)),
            },
            {'u': 0.3, 'p': 0.4, 'r': 0.3},
        ),
    ],
)
def test_load_continues_with_the_same_samples_from_files(tmp_path, selector):
    def opened(path):
        return make(path, capacity=60, online=True, selector=selector())

    replay, twin = opened(tmp_path / 'a'), opened(tmp_path / 'b')
    twin._store.allocator.prefix = replay._store.allocator.prefix
    for target in (replay, twin):
        add(target, range(43))
        batch = target.sample(3)
        target.update(
            {
                'stepid': batch['stepid'],
                'dyn/deter': batch['dyn/deter'] + 1,
                'priority': np.linspace(0, 1, 15).reshape(3, 5),
            }
        )
    state = replay.save()
    replay.close()
    again = opened(tmp_path / 'a')
    again.load(state)
    same_samples(again, twin)
    for target in (again, twin):
        add(target, range(43, 50))
    same_samples(again, twin)


def test_sequences_completed_after_the_save_are_still_online(tmp_path):
    replay = make(tmp_path, online=True)
    add(replay, range(7), workers=(0,))
    replay.sample(1)
    state = replay.save()
    add(replay, range(7, 17), workers=(0,))
    kill(replay)
    again = make(tmp_path, online=True)
    again.load(state)
    assert again.sample(2)['x'][:, 0].tolist() == [5, 10]


def test_repeated_rows_are_recognized_after_a_crash(tmp_path):
    replay = make(tmp_path)
    add(replay, range(20), serials=True)
    kill(replay)
    again = make(tmp_path)
    add(again, range(15, 25), serials=True)
    assert again.inserts == 50
    assert stored_rows(tmp_path) == {
        w: [1000 * w + n for n in range(25)] for w in (0, 1)
    }


def test_the_syncer_calls_again_and_again_until_its_owner_is_gone():
    class Owner:
        def __init__(self):
            self.calls = threading.Semaphore(0)

        def sync(self):
            self.calls.release()

    owner = Owner()
    syncer = Syncer(owner.sync, 0.001)
    calls = owner.calls
    assert all(calls.acquire(timeout=60) for _ in range(3))
    del owner
    syncer._thread.join(60)
    assert not syncer._thread.is_alive()


def test_network_file_systems_are_warned_about(tmp_path, caplog, monkeypatch):
    make(tmp_path / 'a')
    assert 'network' not in caplog.text
    monkeypatch.setattr(folder, 'NETWORK', {file_system(tmp_path)})
    make(tmp_path / 'b')
    assert f'{tmp_path / "b"} lies on a network file system' in caplog.text


def test_another_schema_is_refused_with_the_difference(tmp_path):
    replay = make(tmp_path)
    add(replay, range(3))
    replay.close()
    again = make(tmp_path)
    with pytest.raises(ReplayError) as info:
        again.add({'x': np.float32(0), 'is_first': np.bool_(0), 'y': np.zeros(2)})
    for line in ('x: int64[] -> float32[]', 'y: absent -> float64[2]', 'dyn/deter: '):
        assert line in str(info.value)
    add(again, range(3, 6))
    assert again.inserts == 12


def test_a_second_writer_is_refused_by_name(tmp_path):
    replay = make(tmp_path)
    with pytest.raises(ReplayError, match=r'being written by process \d+ on'):
        make(tmp_path)
    del replay
    gc.collect()
    make(tmp_path)


def test_a_replay_without_references_gives_its_folder_back(tmp_path):
    replay = make(tmp_path, sync_every=1000)
    add(replay, range(3))
    del replay
    gc.collect()
    make(tmp_path)


def test_eviction_deletes_files_while_readers_keep_their_rows(tmp_path):
    replay = make(tmp_path, capacity=64)
    add(replay, range(32))
    starts = replay._store.index.item(np.arange(3))
    out = replay._reader.allocate(3)
    job = replay._reader.begin(starts, out)
    before = set(list_segments(tmp_path))
    add(replay, range(32, 100))
    assert not before & set(list_segments(tmp_path))
    replay._reader.finish(job, out)
    assert out['x'].tolist() == [list(range(i, i + 5)) for i in range(3)]
    assert replay.stats()['steps'] == 64


def test_evicted_rows_stay_evicted_after_reopening(tmp_path):
    replay = make(tmp_path, capacity=30)
    add(replay, range(40), workers=(0,))
    kill(replay)
    again = make(tmp_path, capacity=1000)
    assert stored_rows(tmp_path) == {0: list(range(10, 40))}
    assert len(again) == 26


def test_a_smaller_capacity_applies_when_opening(tmp_path):
    replay = make(tmp_path)
    add(replay, range(40), workers=(0,))
    kill(replay)
    again = make(tmp_path, capacity=20)
    assert set(again.sample(500)['x'][:, 0].tolist()) == set(range(20, 36))


def test_files_stay_below_max_gb(tmp_path):
    replay = make(tmp_path, max_gb=0.002)
    for n in range(600):
        replay.add({'image': np.zeros((32, 32, 3), np.uint8), 'x': np.int64(n)})
        size = sum(path.stat().st_size for path in list_segments(tmp_path))
        assert size <= 2e6
    assert replay.sample(5000)['x'].max() == 599


def test_latents_in_memory_are_lost_with_the_process_and_take_no_disk(tmp_path):
    sizes = {}
    for kind in ('disk', 'ram'):
        replay = make(tmp_path / kind, latents=kind)
        add(replay, range(8))
        batch = replay.sample(4)
        assert (batch['dyn/deter'][..., 0] == batch['x'] % 1000).all()
        sizes[kind] = replay.stats()['gigabytes']
        kill(replay)
    assert sizes['ram'] < sizes['disk']
    assert (make(tmp_path / 'ram').sample(9)['dyn/deter'] == 0).all()


def test_priorities_survive_although_latents_are_in_memory(tmp_path):
    def opened():
        return make(tmp_path, latents='ram', selector=selectors.Prioritized())

    replay = opened()
    add(replay, range(20), workers=(0,))
    batch = replay.sample(500)
    priority = (batch['x'] == 7).astype(np.float32)
    replay.update({'stepid': batch['stepid'], 'priority': priority})
    kill(replay)
    again = opened()
    assert set(again.sample(500)['x'][:, 0].tolist()) == {3, 4, 5, 6, 7}
    add(again, range(20, 60), workers=(0,))
    assert again.sample(500)['x'].max() == 59


def test_a_source_is_read_but_never_written(tmp_path):
    source = make(tmp_path / 'a', chunksize=16)
    add(source, range(40))
    source.close()
    before = {path: path.read_bytes() for path in list_segments(tmp_path / 'a')}
    replay = make(
        tmp_path / 'b', load_from=tmp_path / 'a', selector=selectors.Prioritized()
    )
    assert len(replay) == 2 * 36
    batch = replay.sample(8)
    replay.update(
        {
            'stepid': batch['stepid'],
            'dyn/deter': batch['dyn/deter'] + 100,
            'priority': np.ones((8, 5)),
        }
    )
    assert replay.stats()['stale'] == 0
    add(replay, range(100, 120), workers=(7, 8))
    assert len(replay) == 2 * 36 + 2 * 16
    assert set(replay.sample(5000)['x'][:, 0].tolist()) == {
        *(1000 * w + n for w in (0, 1) for n in range(36)),
        *(1000 * w + n for w in (7, 8) for n in range(100, 116)),
    }
    assert before == {path: path.read_bytes() for path in list_segments(tmp_path / 'a')}


def test_a_source_is_evicted_before_own_steps(tmp_path):
    source = make(tmp_path / 'a')
    add(source, range(40), workers=(0,))
    source.close()
    replay = Replay(5, 50, load_from=tmp_path / 'a', chunksize=8)
    add(replay, range(100, 130), workers=(0,))
    assert set(replay.sample(2000)['x'][:, 0].tolist()) == {
        *range(20, 36),
        *range(100, 126),
    }


def test_a_source_without_segments_is_refused(tmp_path):
    with pytest.raises(ReplayError, match='There is no replay in'):
        Replay(5, load_from=tmp_path)
    make(tmp_path).close()
    with pytest.raises(ReplayError, match='holds no replay segments'):
        Replay(5, load_from=tmp_path)


def test_a_source_may_be_the_folder_of_a_run(tmp_path):
    source = make(tmp_path / 'run' / 'replay')
    add(source, range(10), workers=(0,))
    source.close()
    assert len(Replay(5, load_from=tmp_path / 'run')) == 6


def test_remote_folders_are_refused():
    with pytest.raises(ReplayError, match='not on a local disk'):
        make('gs://bucket/run')


def test_unknown_places_for_latents_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="'disk' or 'ram'"):
        make(tmp_path, latents='tape')


DESCRIPTORS = """
    import resource
    from embodied.core.errors import ReplayError
    from embodied.replay.recovery.folder import need_descriptors
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, 900))
    need_descriptors(200)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert 456 < soft < 500 and hard == 900, (soft, hard)
    try:
        need_descriptors(2000)
    except ReplayError as error:
        assert 'hard limit here is 900' in str(error), error
        print('refused')
"""


def test_the_limit_of_open_files_is_raised_or_the_lack_of_it_explained():
    command = [sys.executable, '-c', textwrap.dedent(DESCRIPTORS)]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.stdout == 'refused\n', result.stderr


@pytest.mark.skipif(sys.platform != 'linux', reason='/proc is of Linux')
def test_the_file_system_of_a_folder_is_found():
    assert file_system(Path('/proc/self')) == 'proc'


FULL_DISK = """
    import pathlib, numpy as np
    from embodied.core.errors import ReplayError
    from embodied.replay import Replay
    path = pathlib.Path({path!r})
    replay = Replay(4, 2000, path, chunksize=64, sync_every=0)
    n = 0
    try:
        while n < 2000:
            replay.add({{'image': np.full((64, 64, 3), n % 251, np.uint8)}})
            n += 1
    except ReplayError as error:
        assert 'No space left' in str(error), error
    assert 0 < n < 2000
    for again in (replay, None):
        if again is None:
            replay.close()
            again = Replay(4, 2000, path, chunksize=64, sync_every=0)
        assert len(again) == n - 3
        image = again.sample(64)['image'].reshape(64, 4, -1)
        assert (image == image[:, :, :1]).all()
    print('full after', n)
"""


def test_a_full_disk_stops_inserting_and_keeps_what_is_there(tmp_path):
    script = tmp_path / 'fill.py'
    script.write_text(textwrap.dedent(FULL_DISK.format(path=str(tmp_path / 'small'))))
    (tmp_path / 'small').mkdir()
    mount = f'mount -t tmpfs -o size=8m none {tmp_path}/small'
    space = ['unshare', '--user', '--map-root-user', '--mount', 'sh', '-c']
    if subprocess.run([*space, mount], capture_output=True).returncode:
        pytest.skip('needs to mount a small tmpfs: run the tests as root')
    command = [*space, f'{mount} && exec {sys.executable} {script}']
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert 'full after' in result.stdout
