"""Commands that set the repository up, as far as they need no network."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
UV = shutil.which('uv')


def commands_of(*words):
    """What `make` would do, also if these tests were started by one."""
    outer = ('MAKEFLAGS', 'MAKELEVEL', 'MFLAGS')
    done = subprocess.run(
        ['make', '-n', *words],
        cwd=ROOT,
        env={k: v for k, v in os.environ.items() if k not in outer},
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout


def test_extras_of_make_setup_reach_the_installer(tmp_path):
    venv = f'VENV={tmp_path / "venv"}'
    plain = commands_of('setup', venv)
    extras = commands_of('setup', venv, 'EXTRAS=cuda,atari')
    assert "-e '.'" in plain and '[' not in plain.partition("-e '")[2]
    assert "-e '.[cuda,atari]'" in extras
    # Another choice of extras is installed again.
    stamps = [text.rstrip().rpartition(' ')[2] for text in (plain, extras)]
    assert stamps[0] != stamps[1]
    assert not (tmp_path / 'venv').exists()


@pytest.mark.skipif(UV is None, reason='tests of uv need: pip install uv')
def test_uv_runs_the_command_and_leaves_no_lock_file(tmp_path):
    copy = tmp_path / 'copy'
    shutil.copytree(ROOT / 'dreamerv3', copy / 'dreamerv3')
    for name in ('pyproject.toml', 'README.md'):
        shutil.copy(ROOT / name, copy)
    environ = {**os.environ, 'UV_PROJECT_ENVIRONMENT': sys.prefix}
    done = subprocess.run(
        [UV, 'run', '--no-sync', '--offline', 'dreamer', '--version'],
        cwd=copy,
        env=environ,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith('dreamer-parallel ')
    assert not (copy / 'uv.lock').exists()
