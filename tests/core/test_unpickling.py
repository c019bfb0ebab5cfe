"""Saved states: own ones hold anything, those of others plain data only."""

import collections
import dataclasses
import fractions
import json
import os
import pickle
import shutil

import numpy as np
import pytest
from saved_parts import Box

import embodied
from embodied.core import ownership, unpickling
from embodied.core.checkpoint import Checkpoint, is_own, load_part
from embodied.core.errors import CheckpointError, TrustError
from embodied.core.files import seal


@dataclasses.dataclass
class Custom:
    value: int


def saved(folder, value):
    checkpoint = Checkpoint(folder)
    checkpoint.add('box', Box(value))
    checkpoint.save()
    checkpoint.wait()
    return folder


def restored(folder, **options):
    box = Box()
    checkpoint = Checkpoint(folder, **options)
    checkpoint.add('box', box)
    checkpoint.load()
    return box.value


PLAIN = {
    'containers': {'a': [1, (2.5, None)], 3: {b'x', 'y'}, 'z': 1j},
    'ordered': collections.OrderedDict(a=1),
    'queue': collections.deque([1, 2]),
    'fraction': fractions.Fraction(1, 3),
    'random state': np.random.default_rng(0).bit_generator.state,
    'scalar': np.float32(1.5),
}


@pytest.mark.parametrize('value', PLAIN.values(), ids=PLAIN)
def test_plain_data_needs_no_trust(value):
    assert unpickling.loads(pickle.dumps(value, 5)) == value


@pytest.mark.parametrize('dtype', ['<f4', '>i8', '?', 'U3', 'bfloat16', 'O'])
def test_arrays_need_no_trust(dtype):
    import ml_dtypes

    dtype = ml_dtypes.bfloat16 if dtype == 'bfloat16' else dtype
    array = np.array([[1, 0], [1, 1]]).astype(dtype)
    for value in (array, array.T, array[:, :1]):
        found = unpickling.loads(pickle.dumps(value, 5))
        np.testing.assert_array_equal(found, value)
        assert found.dtype == pickle.loads(pickle.dumps(value, 5)).dtype


@pytest.mark.parametrize(
    'pickled',
    [
        b'cos\nsystem\n(Vtrue\ntR.',
        b'\x80\x04\x8c\x08builtins\x8c\x04eval\x93.',
        b'\x80\x04\x8c\x05numpy\x8c\x0efromfile.__get\x93.',
        b'\x80\x04\x8c\x05numpy\x8c\x04load\x93.',
        b'\x80\x04\x8c\x10numpy._core.xxxx\x8c\x05dtype\x93.',
        b'\x80\x04\x8c\x13dreamerv3.main.main\x8c\x04main\x93.',
    ],
)
def test_names_that_could_run_code_are_not_looked_up(pickled):
    with pytest.raises(TrustError, match='asks for .* --trust'):
        unpickling.loads(pickled)


def test_own_saves_hold_anything(tmp_path):
    saved(tmp_path, Custom(3))
    assert is_own(tmp_path, 'box')
    assert restored(tmp_path) == load_part(tmp_path, 'box') == Custom(3)


def test_own_saves_may_be_moved(tmp_path):
    saved(tmp_path / 'a', Custom(3))
    (tmp_path / 'a').rename(tmp_path / 'b')
    assert restored(tmp_path / 'b') == Custom(3)


def copy(folder):
    shutil.copytree(folder, folder.with_name('copy'))
    return folder.with_name('copy')


def unpack(folder):
    """With the times and numbers of users that the author of an archive chooses."""
    shutil.make_archive(str(folder), 'tar', folder)
    shutil.unpack_archive(f'{folder}.tar', folder.with_name('unpacked'), filter='data')
    return folder.with_name('unpacked')


def replace(folder):
    """By another user with access to the files and knowledge of the manifest."""
    (part,) = folder.glob('*/box.pkl')
    part.write_bytes(part.read_bytes())
    return folder


def give_away(folder):
    """As root, to another user, and the manifest tells so truly."""
    if os.geteuid():
        pytest.skip('only root gives files away: run the tests as root')
    (part,) = folder.glob('*/box.pkl')
    os.chown(part, 12345, -1)
    manifest = part.with_name('manifest.json')
    text = manifest.read_text()

    content = json.loads(text) | {'fingerprints': {'box': ownership.fingerprint(part)}}
    rewrite(manifest, content)
    return folder


def rewrite(manifest, content):
    """With a checksum that fits, as its author could."""
    del content['checksum']
    manifest.write_text(json.dumps(seal(content)))


def share(folder):
    (part,) = folder.glob('*/box.pkl')
    part.parent.chmod(0o777)
    return folder


def unseal(folder):
    """As versions before 0.2 wrote them."""

    (manifest,) = folder.glob('*/manifest.json')
    content = json.loads(manifest.read_text())
    del content['fingerprints']
    rewrite(manifest, content)
    return folder


@pytest.mark.parametrize('how', [copy, unpack, replace, give_away, share, unseal])
def test_saves_from_elsewhere_hold_plain_data_only(tmp_path, how):
    folder = how(saved(tmp_path / 'custom', Custom(3)))
    assert not is_own(folder, 'box')
    with pytest.raises(TrustError, match='Custom.*--trust'):
        restored(folder)
    with pytest.raises(TrustError, match='Custom.*trust=True'):
        load_part(folder, 'box')
    assert restored(folder, trust=True) == Custom(3)
    assert load_part(folder, 'box', trust=True) == Custom(3)


def test_plain_saves_from_elsewhere_are_loaded(tmp_path):
    value = {'x': np.arange(3)}
    folder = copy(saved(tmp_path / 'plain', value))
    np.testing.assert_array_equal(restored(folder)['x'], value['x'])


class Stateful(embodied.envs.Dummy):
    """An environment whose state is an object of its own class."""

    def save(self):
        return Custom(7)

    def load(self, data):
        assert data == Custom(7)


@pytest.mark.parametrize('parallel', [False, True])
def test_states_of_environments_are_as_trusted_as_their_checkpoint(tmp_path, parallel):
    def restore(folder, save=False, **options):
        driver = embodied.Driver([lambda: Stateful('disc')], parallel=parallel)
        try:
            checkpoint = Checkpoint(folder, **options)
            checkpoint.add('driver', driver)
            if save:
                checkpoint.save()
                checkpoint.wait()
            checkpoint.load()
        finally:
            driver.close()

    restore(tmp_path / 'own', save=True)
    folder = copy(tmp_path / 'own')
    with pytest.raises(TrustError, match='Custom.*--trust'):
        restore(folder)
    restore(folder, trust=True)


def put_pipe(folder, name):
    (path,) = folder.glob(name)
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize('name', ['*/manifest.json', '*/box.pkl'])
def test_a_pipe_in_place_of_a_file_of_a_save_is_refused_at_once(tmp_path, name):
    put_pipe(saved(tmp_path / 'a', 3), name)
    with pytest.raises(CheckpointError, match=name.removeprefix('*/')):
        load_part(tmp_path / 'a', 'box')


def test_a_pipe_that_should_name_the_newest_save_keeps_it_from_no_use(tmp_path):
    put_pipe(saved(tmp_path / 'a', 3), 'latest')
    assert load_part(tmp_path / 'a', 'box') == 3
