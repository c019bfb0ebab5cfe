"""docs/your_environment.md works as it stands: its files, commands and scripts."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
GUIDE = ROOT / 'docs' / 'your_environment.md'
BLOCK = re.compile(r'^```(\w+)\n(.*?)^```$', re.MULTILINE | re.DOTALL)
FILE = re.compile(r'# ([\w.]+\.py)\n')  # first line of blocks that are files


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    """An empty folder with a `dreamer` command, as a reader has it."""
    folder = tmp_path_factory.mktemp('guide')
    command = folder / 'bin' / 'dreamer'
    command.parent.mkdir()
    # Like an installed script: the working directory is not on its path.
    script = f'exec {sys.executable} -P -c "import sys; from dreamerv3.main import main'
    command.write_text(f'#!/bin/sh\n{script}; sys.exit(main())" "$@"\n')
    command.chmod(0o755)
    return folder


def run(folder, *command):
    path = f'{folder / "bin"}{os.pathsep}{os.environ["PATH"]}'
    modules = os.pathsep.join([str(ROOT), os.environ.get('PYTHONPATH', '')])
    return subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, 'PATH': path, 'PYTHONPATH': modules},
        capture_output=True,
        text=True,
        timeout=500,
    )


@pytest.mark.timeout(900)
def test_a_reader_who_follows_the_guide_literally_arrives(folder):
    blocks = BLOCK.findall(GUIDE.read_text())
    kinds = [kind for kind, _ in blocks]
    assert kinds.count('sh') >= 7 and kinds.count('python') >= 4
    outputs = []
    for kind, code in blocks:
        name = FILE.match(code)
        if name:
            (folder / name[1]).write_text(code)
        elif kind == 'python':
            (folder / 'script.py').write_text(code)
            outputs.append(run(folder, sys.executable, 'script.py'))
        else:
            outputs.append(run(folder, 'bash', '-euc', code))
        for done in outputs[-1:]:
            assert done.returncode == 0, f'{code}\n{done.stdout}\n{done.stderr}'
    text = '\n'.join(done.stdout for done in outputs)
    assert text.count('No faults found') == 3
    assert re.search(r'\d+ episodes, mean score', text)
    assert re.search(r'walk:make_env +2 ', text)
    for name in ('walk', 'walk-parallel', 'walk-jobs', 'walk-python'):
        assert (folder / 'logdir' / name / 'scores.jsonl').stat().st_size
