"""docs/change_the_algorithm.md: its patch applies to the code of now, and trains."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from embodied.logging import read_records

ROOT = pathlib.Path(__file__).parents[3]
PAGE = ROOT / 'docs' / 'change_the_algorithm.md'


@pytest.fixture(scope='module')
def changed(tmp_path_factory):
    """A copy of the packages with the patch of the page."""
    folder = tmp_path_factory.mktemp('changed')
    unwanted = shutil.ignore_patterns('__pycache__', 'static')
    for name in ('dreamerv3', 'embodied'):
        shutil.copytree(ROOT / name, folder / name, symlinks=True, ignore=unwanted)
    (patch,) = re.findall(r'```diff\n(.*?)```', PAGE.read_text(), re.DOTALL)
    command = ['patch', '-p1', '--fuzz=2', '--no-backup-if-mismatch']
    done = subprocess.run(
        command, cwd=folder, input=patch, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def dreamer(folder, *argv):
    command = [sys.executable, '-m', 'dreamerv3', *argv]
    environ = {**os.environ, 'PYTHONPATH': str(folder)}
    return subprocess.run(
        command, cwd=folder, env=environ, capture_output=True, text=True
    )


def test_the_patch_of_the_page_applies_and_adds_options(changed):
    done = dreamer(changed, 'config', '--describe', 'found', '--configs', 'size1m')
    assert 'agent.loss_scales.found' in done.stdout, done.stderr
    assert re.search(r'agent\.found\.units +64', done.stdout)


@pytest.mark.long
def test_the_changed_algorithm_trains(changed, tmp_path):
    flags = ['--configs', 'tiny', 'debug', '--task', 'toy_reach']
    flags += ['--run.steps', '60', '--run.log_every', '-1', '--logdir', str(tmp_path)]
    done = dreamer(changed, 'train', *flags)
    assert done.returncode == 0, done.stderr
    losses = [
        x.get('train/loss/found') for x in read_records(tmp_path / 'metrics.jsonl')
    ]
    assert any(x is not None and x > 0 for x in losses)


def test_files_that_the_page_names_exist():
    for link in re.findall(r'\]\(([\w./]+\.(?:py|md|yaml))', PAGE.read_text()):
        assert (PAGE.parent / link).exists(), link
