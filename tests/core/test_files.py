"""Small files: whole or not at all, and never damaged without notice."""

import contextlib
import errno
import json
import resource

import pytest

from embodied.core.errors import StorageError
from embodied.core.files import (
    overwrite,
    read_sealed,
    seal,
    set_aside,
    storage_errors,
    write_whole,
)

RECORD = {'name': 'x', 'steps': [1, 2], 'nested': {'b': 2, 'a': None}}
OLD = frozenset({'name', 'steps'})


@contextlib.contextmanager
def small_files():
    """No file can grow above 100 bytes, also not the output of the test runner."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_file_is_replaced(tmp_path):
    for text in ('first', 'second'):
        write_whole(tmp_path / 'a', text)
        assert (tmp_path / 'a').read_text() == text
    assert [x.name for x in tmp_path.iterdir()] == ['a']


def test_a_write_that_fails_leaves_the_file_as_it_was(tmp_path):
    write_whole(tmp_path / 'a', 'old')
    with small_files(), pytest.raises(OSError, match='File too large'):
        write_whole(tmp_path / 'a', 'new' * 100)
    assert (tmp_path / 'a').read_text() == 'old'
    assert [x.name for x in tmp_path.iterdir()] == ['a']


def test_last_words_take_the_room_that_is_there(tmp_path):
    path = tmp_path / 'a'
    path.write_text('x' * 1000)
    overwrite(path, 'short')
    assert path.read_text() == 'short'
    with pytest.raises(OSError, match='No space left'):
        overwrite(path, 'x' * 1_000_000)
    assert path.read_text() == 'short'


def test_any_flipped_byte_of_a_sealed_record_is_noticed(tmp_path):
    path = tmp_path / 'record.json'
    whole, noticed = json.dumps(seal(RECORD)).encode(), 0
    for index in range(len(whole)):
        for bit in (0x01, 0x10, 0x80):
            data = bytearray(whole)
            data[index] ^= bit
            path.write_bytes(data)
            try:
                found = read_sealed(path, OLD)
            except ValueError:
                noticed += 1
            else:  # A space became a line break.
                assert found == RECORD
    assert noticed > 2.8 * len(whole)
    path.write_bytes(whole)
    assert read_sealed(path, OLD) == RECORD


@pytest.mark.parametrize('text', ['', '[]', '3', '{}', '{"name": 1}'])
def test_what_is_no_record_is_refused(tmp_path, text):
    (tmp_path / 'a').write_text(text)
    with pytest.raises(ValueError):
        read_sealed(tmp_path / 'a', OLD)


def test_records_of_before_have_no_seal(tmp_path):
    (tmp_path / 'a').write_text('{"steps": 1, "name": "x"}')
    assert read_sealed(tmp_path / 'a', OLD) == {'steps': 1, 'name': 'x'}


def test_what_is_set_aside_can_be_looked_at(tmp_path):
    (tmp_path / 'a.json').write_text('?')
    assert set_aside(tmp_path / 'a.json') == tmp_path / 'a.json.bad'
    assert [x.name for x in tmp_path.iterdir()] == ['a.json.bad']


def test_a_full_disk_is_told_with_the_path_and_what_to_do(tmp_path):
    full = OSError(errno.ENOSPC, 'No space left on device', str(tmp_path / 'a'))
    with pytest.raises(StorageError) as info, storage_errors(tmp_path):
        raise full
    assert str(tmp_path / 'a') in str(info.value)
    assert 'No space left on device. Make room' in str(info.value)
    with pytest.raises(FileNotFoundError), storage_errors(tmp_path):
        (tmp_path / 'missing').read_text()


def test_a_file_that_this_user_may_not_write_is_told_with_what_to_do(tmp_path):
    refused = PermissionError(errno.EACCES, 'Permission denied', str(tmp_path / 'a'))
    with (
        pytest.raises(StorageError, match='Permission denied. Give') as info,
        storage_errors(tmp_path),
    ):
        raise refused
    assert str(tmp_path / 'a') in str(info.value)
    # Errors elsewhere are those of the user's program, and keep their traceback.
    with pytest.raises(PermissionError), storage_errors(tmp_path / 'run'):
        raise refused
    with pytest.raises(PermissionError), storage_errors(tmp_path):
        raise PermissionError(errno.EPERM, 'Operation not permitted')
