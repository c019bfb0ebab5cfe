"""Tools on replay folders: what they print, write, delete and refuse."""

import os

import numpy as np
import pytest

from dreamerv3.commands.replay_tools import main
from embodied.replay import Replay
from embodied.replay.recovery.folder import list_segments
from embodied.replay.tools.footprint import Footprint, row_bytes_of


@pytest.fixture
def logdir(tmp_path):
    replay = Replay(4, 1000, tmp_path / 'run' / 'replay', chunksize=16, sync_every=0)
    for n in range(95):
        step = {
            'image': np.full((2, 8, 8, 3), n, np.uint8),
            'is_first': np.array([n % 10 == 0, n % 20 == 0]),
            'dyn/deter': np.zeros((2, 4), np.float32),
        }
        replay.add_batch(step, [0, 1])
    replay.close()
    return tmp_path / 'run'


def test_info_names_sizes_schema_streams_and_episodes(logdir, capsys):
    assert main(['info', str(logdir)]) == 0
    words = ' '.join(capsys.readouterr().out.split())
    for part in ('steps 190', 'streams 2', 'episodes 15', 'image: uint8[8, 8, 3]'):
        assert part in words


def test_check_finds_nothing_in_a_whole_folder(logdir, capsys):
    assert main(['check', str(logdir)]) == 0
    assert '0 problems' in capsys.readouterr().out


def test_check_names_a_damaged_file(logdir, capsys):
    path = list_segments(logdir / 'replay')[0]
    path.write_bytes(path.read_bytes()[:5000])
    assert main(['check', str(logdir)]) == 1
    assert f'{path}: it has 5000 of' in capsys.readouterr().out


def test_export_writes_one_file_per_episode(logdir, tmp_path):
    assert main(['export', str(logdir), str(tmp_path / 'out')]) == 0
    files = sorted((tmp_path / 'out').glob('*.npz'))
    assert len(files) == 15
    with np.load(tmp_path / 'out' / 'stream0-step00000020-length10.npz') as data:
        assert set(data) == {'image', 'is_first'}
        assert data['image'][:, 0, 0, 0].tolist() == list(range(20, 30))
        assert data['is_first'].tolist() == [True] + [False] * 9


def test_export_stops_after_the_given_number_and_adds_latents(logdir, tmp_path):
    out = str(tmp_path / 'out')
    assert main(['export', str(logdir), out, '--episodes', '2', '--latents']) == 0
    files = sorted((tmp_path / 'out').glob('*.npz'))
    assert len(files) == 2
    with np.load(files[0]) as data:
        assert 'dyn/deter' in data


def test_export_gives_torn_latents_as_zeros(logdir, tmp_path):
    replay = Replay(4, directory=logdir / 'replay', sync_every=0)
    segment = replay._store.allocator.segments[0]
    segment.columns['dyn/deter'][0] = 7
    segment.columns['.version'][0, 3] += 1
    replay.close()
    assert main(['export', str(logdir), str(tmp_path / 'out'), '--latents']) == 0
    with np.load(tmp_path / 'out' / 'stream0-step00000000-length10.npz') as data:
        assert data['dyn/deter'][:, 0].tolist() == [7, 7, 7, 0, 7, 7, 7, 7, 7, 7]


def test_prune_deletes_the_oldest(logdir, capsys):
    before = len(list_segments(logdir / 'replay'))
    assert main(['prune', str(logdir), '--steps', '50']) == 0
    assert '50 steps' in capsys.readouterr().out
    assert len(list_segments(logdir / 'replay')) < before


def test_prune_without_a_bound_is_refused(logdir, capsys):
    assert main(['prune', str(logdir)]) == 1
    assert '--steps' in capsys.readouterr().err


def test_prune_by_size_leaves_less_than_asked(logdir):
    assert main(['prune', str(logdir), '--gb', '0.0002']) == 0
    size = sum(path.stat().st_size for path in list_segments(logdir / 'replay'))
    assert 0 < size <= 200_000


def test_prune_refuses_a_folder_in_use(logdir, capsys):
    replay = Replay(4, directory=logdir / 'replay', sync_every=0)
    assert main(['prune', str(logdir), '--steps', '5']) == 1
    assert 'being written by' in capsys.readouterr().err
    replay.close()


def test_a_folder_without_replay_is_named(tmp_path, capsys):
    assert main(['info', str(tmp_path)]) == 1
    assert f'no replay in {tmp_path}' in capsys.readouterr().err


def test_the_estimate_takes_the_smaller_bound(tmp_path):
    by_steps = Footprint.of(1000, 10**6, 10**12, tmp_path)
    by_bytes = Footprint.of(1000, 10**9, 10**9, tmp_path)
    assert by_steps.needed == by_bytes.needed == 10**9
    assert 'needs about 1.0 GB of disk' in str(by_steps)


@pytest.mark.parametrize('row, latent', [(10**6, 0), (1, 10**6)])
def test_too_little_disk_or_memory_is_warned_about(tmp_path, caplog, row, latent):
    Footprint.of(row, 10**10, None, tmp_path / 'new', latent).report()
    assert 'are free. Lower replay.size' in caplog.text


def test_an_estimate_that_fits_is_no_warning(tmp_path, caplog):
    Footprint.of(1000, 10**6, None, tmp_path).report()
    assert not caplog.records


def test_latents_in_memory_are_part_of_the_estimate(tmp_path):
    text = str(Footprint.of(1000, 10**6, None, tmp_path, 2000))
    assert 'needs about 1.0 GB of disk' in text and '2.0 GB of RAM for latents' in text


def test_bytes_per_step_follow_from_the_spaces():
    class Space:
        dtype, shape = np.uint8, (64, 64, 3)

    assert row_bytes_of({'image': Space(), 'log/x': Space()}) == 64 * 64 * 3 + 24


def test_names_in_a_replay_cannot_steer_the_terminal(tmp_path, capsys):
    replay = Replay(2, 100, tmp_path / 'replay', chunksize=16, sync_every=0)
    replay.add_batch({'x\x1b[2J\nfake': np.zeros((1, 2), np.float32)}, [0])
    replay.close()
    assert main(['info', str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert 'x\\x1b[2J\\nfake: float32[2]' in out and '\x1b' not in out


def test_a_pipe_in_place_of_the_metadata_blocks_no_command(logdir, capsys):
    (logdir / 'replay' / 'replay.json').unlink()
    os.mkfifo(logdir / 'replay' / 'replay.json')
    main(['info', str(logdir)])
    assert 'steps' in capsys.readouterr().out
