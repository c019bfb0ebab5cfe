"""Files and texts from outside."""

import os

import pytest

from embodied.core.outside import LONGEST_TEXT, open_plain, read_plain, shown


@pytest.mark.parametrize(
    ('text', 'result'),
    [
        ('plain text', 'plain text'),
        ('äöü 漢字 🙂', 'äöü 漢字 🙂'),
        ('two\nlines\tand a tab', 'two\nlines\tand a tab'),
        ('\x1b[31mred', '\\x1b[31mred'),
        ('\x9b31m', '\\x9b31m'),
        ('bell\x07 back\x08 return\r', 'bell\\x07 back\\x08 return\\r'),
        ('a\u202eb\u2066c\u200bd', 'a\\u202eb\\u2066c\\u200bd'),
        ('\ud800', '\\ud800'),
        ('\u2028', '\\u2028'),
        ('\U000e0041', '\\U000e0041'),
    ],
)
def test_texts_are_shown_without_controls(text, result):
    assert shown(text) == result
    shown(text).encode()


def test_one_line_stays_one_line():
    assert shown('a\nb\tc', keep='') == 'a\\nb\\tc'


def test_endless_texts_are_cut():
    text = shown('x' * (LONGEST_TEXT + 5))
    assert text == 'x' * LONGEST_TEXT + '... (5 more characters)'


def test_plain_files_are_read_up_to_a_size(tmp_path):
    path = tmp_path / 'file'
    path.write_bytes(b'12345')
    (tmp_path / 'link').symlink_to(path)
    assert read_plain(path, 5) == read_plain(tmp_path / 'link', 5) == b'12345'
    with pytest.raises(OSError, match='larger than 4'):
        read_plain(path, 4)


def test_pipes_folders_and_devices_are_no_plain_files(tmp_path):
    os.mkfifo(tmp_path / 'pipe')
    (tmp_path / 'zero').symlink_to('/dev/zero')
    for path in (tmp_path / 'pipe', tmp_path, tmp_path / 'zero'):
        with pytest.raises(OSError, match='plain'):
            read_plain(path, 10)
        with open_plain(path, follow=True) as file:
            assert file is None
    with pytest.raises(FileNotFoundError):
        read_plain(tmp_path / 'nothing', 10)
