"""`dreamer play`, where there is no display."""

import os
import shutil

import pytest
from PIL import Image

from dreamerv3.main import main

FLAGS = ['--run.debug', '--logger.fps', '10']


@pytest.fixture(autouse=True)
def no_display(monkeypatch):
    monkeypatch.delenv('DISPLAY', raising=False)


def test_without_display_a_gif_is_written_into_the_folder(catch_run, tmp_path, capsys):
    shutil.copytree(catch_run, tmp_path / 'run')
    assert main(['play', str(tmp_path / 'run'), '--episodes', '2', *FLAGS]) == 0
    path = tmp_path / 'run' / 'play.gif'
    out = capsys.readouterr().out
    assert out.startswith(f'{path}  score ')
    assert len(out.split('score ')[1].split(',')) == 2
    with Image.open(path) as film:
        assert (film.info['duration'], film.size) == (100, (128, 128))
        # Equal frames are one in a GIF; two episodes have 16 steps.
        assert 8 < film.n_frames <= 16


def test_display_that_does_not_answer_is_explained(catch_run, monkeypatch, capsys):
    monkeypatch.setenv('DISPLAY', ':987')
    assert main(['play', str(catch_run), *FLAGS]) == 2
    assert '--out FILE.gif' in capsys.readouterr().err


def test_mp4_is_written_where_it_is_asked_for(catch_run, tmp_path):
    out = tmp_path / 'new' / 'film.mp4'
    assert main(['play', str(catch_run), '--greedy', '--out', str(out), *FLAGS]) == 0
    assert out.read_bytes()[4:8] == b'ftyp'


def test_tasks_without_images_and_other_formats_are_explained(
    catch_run, tmp_path, capsys
):
    argv = ['play', str(catch_run), *FLAGS]
    assert main([*argv, '--task', 'gym_CartPole-v1']) == 2
    assert 'nothing to see' in capsys.readouterr().err
    assert main([*argv, '--out', str(tmp_path / 'film.avi')]) == 2
    assert '.gif or .mp4' in capsys.readouterr().err
    assert os.listdir(tmp_path) == []
