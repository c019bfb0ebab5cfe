"""Sources: what is read from folders of each kind, and which folders are refused."""

import hashlib

import numpy as np
import pytest
from recordings import episode, flagged, write_npz, write_replay

from embodied.core.checkpoint import Checkpoint
from embodied.core.errors import ConfigError, ReplayError
from embodied.datasets import open_source
from embodied.datasets.completing import complete
from embodied.datasets.source import Episode
from embodied.replay import Replay

NAMES = ('vector', 'action', 'reward', 'is_first', 'is_last', 'is_terminal')


class Saved:
    """Part of a checkpoint that saves what it is given."""

    def __init__(self, data):
        self.save = lambda: data

    def load(self, data):
        pass


def checksums(folder):
    return {
        path: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob('*'))
        if path.is_file()
    }


def test_npz_files_are_read_in_the_order_of_their_names(tmp_path):
    write_npz(tmp_path / 'data', [episode(0, 3), episode(1, 5)])
    source = open_source(str(tmp_path / 'data'))
    assert (source.steps, source.count) == (8, 2)
    first, second = source.episodes(NAMES)
    assert first.name.endswith('episode000.npz')
    assert second.values['vector'].tolist() == [[1, t] for t in range(5)]


def test_the_replay_of_a_live_run_is_read_and_not_changed(tmp_path):
    episodes = [flagged(episode(n, 4)) for n in range(3)]
    replay = write_replay(tmp_path / 'run' / 'replay', episodes, close=False)
    before = checksums(tmp_path)
    source = open_source(str(tmp_path / 'run'))
    read = list(source.episodes(NAMES))
    assert checksums(tmp_path) == before
    replay.close()
    assert [x.values['vector'][0, 0] for x in read] == [0, 1, 2]
    assert (source.steps, source.count) == (12, 3)


@pytest.mark.parametrize('capacity, kept', [(1000, 6), (48, 3)])
def test_the_replay_that_a_run_keeps_in_its_checkpoint_is_read(
    tmp_path, capacity, kept
):
    replay = Replay(2, capacity, chunksize=16)
    for values in [flagged(episode(n, 16)) for n in range(6)]:
        for t in range(16):
            replay.add({key: value[t] for key, value in values.items()})
    checkpoint = Checkpoint(tmp_path / 'run' / 'ckpt')
    checkpoint.add('replay', Saved({'content': replay.save(), 'steps': 96}))
    checkpoint.save()
    checkpoint.wait()
    before = checksums(tmp_path)
    source = open_source(str(tmp_path / 'run'))
    read = list(source.episodes(NAMES))
    assert checksums(tmp_path) == before
    assert [int(x.values['vector'][0, 0]) for x in read] == list(range(6))[-kept:]
    assert [x.values['vector'][:, 1].tolist() for x in read] == [list(range(16))] * kept


def test_flags_follow_from_the_borders_of_an_episode():
    values = complete(Episode('x', episode(0, 4, terminal=True)))
    assert values['is_first'].tolist() == [True, False, False, False]
    assert values['is_last'].tolist() == [False, False, False, True]
    assert values['is_terminal'].tolist() == [False, False, False, True]


def test_an_episode_that_was_cut_ends_without_a_terminal_state():
    values = complete(Episode('x', episode(0, 4, terminal=False)))
    assert values['is_last'].tolist() == [False, False, False, True]
    assert not values['is_terminal'].any()


def test_flags_that_are_given_divide_a_recording_into_episodes():
    recording = episode(0, 6, is_first=np.array([0, 0, 0, 1, 0, 0]))
    values = complete(Episode('x', recording))
    assert values['is_first'].tolist() == [True, False, False, True, False, False]
    assert values['is_last'].tolist() == [False, False, True, False, False, True]


def test_rows_of_different_number_are_refused():
    broken = episode(0, 4) | {'action': np.zeros(3, np.int32)}
    with pytest.raises(ReplayError, match=r'action \(3,\).*vector \(4, 2\)'):
        complete(Episode('x', broken))


def test_an_episode_without_rewards_is_refused():
    values = episode(0, 4)
    del values['reward']
    with pytest.raises(ReplayError, match="no key 'reward', only action, is_term"):
        complete(Episode('x', values))


def make_empty(path):
    path.mkdir()


def make_foreign(path):
    path.mkdir()
    (path / 'notes.txt').write_text('x')


def make_run_without_replay(path):
    checkpoint = Checkpoint(path / 'ckpt')
    checkpoint.add('replay', Saved({'content': None, 'steps': 0}))
    checkpoint.save()
    checkpoint.wait()


def make_file(path):
    path.write_text('x')


def make_pickled(path):
    write_npz(path, [{'reward': np.array([None, 1])}])


def make_broken(path):
    path.mkdir()
    (path / 'a.npz').write_bytes(b'PK no archive')


def make_compressed_wrongly(path):
    (file,) = write_npz(path, [episode(0, 300)]).iterdir()
    content = bytearray(file.read_bytes())
    content[40:100] = bytes(60)
    file.write_bytes(content)


def make_folder_as_file(path):
    (path / 'a.npz').mkdir(parents=True)


def make_mixed(path):
    write_npz(path, [episode(0, 3), episode(1, 3, speed=np.zeros(3))])


@pytest.mark.parametrize(
    'make, message',
    [
        (lambda path: None, 'There is no folder'),
        (make_empty, 'is empty. Data are the folder of a run'),
        (make_foreign, 'holds no episodes, only notes.txt'),
        (make_run_without_replay, 'is neither there nor in its checkpoint'),
        (make_file, 'is a file'),
        (make_pickled, 'neither numbers nor booleans'),
        (make_broken, 'a.npz is no whole file'),
        (make_compressed_wrongly, 'episode000.npz is no whole file'),
        (make_folder_as_file, 'a.npz cannot be read: Is a directory'),
        (
            make_mixed,
            r'episode001.npz hold different arrays:\n  speed: none and float64',
        ),
    ],
)
def test_what_holds_no_episodes_is_refused_and_named(tmp_path, make, message):
    path = tmp_path / 'given'
    make(path)
    with pytest.raises((ReplayError, ConfigError), match=message) as raised:
        open_source(str(path))
    assert str(path) in str(raised.value)
