"""What a person sees of a run, also if its logger is a process of its own."""

import os
import re
import subprocess
import sys

from pseudo_terminal import run_in_terminal

from embodied.logging import read_records

FLAGS = ['--configs', 'tiny', '--random_agent', '--run.envs', '2']
FLAGS += ['--run.steps', '600']
FLAGS += ['--run.eval_envs', '0', '--run.log_every', '0.2', '--run.report_every', '0']


def test_live_view_of_a_run_ends_with_all_its_figures(tmp_path):
    argv = ['-m', 'dreamerv3', 'parallel', *FLAGS, '--logdir', str(tmp_path)]
    text = run_in_terminal(argv, NO_COLOR='1', LINES='40')
    plain = re.sub(r'\x1b\[[0-9;?]*[A-Za-z]', '', text)
    assert 'Traceback' not in plain
    last = plain.split('╭')[-1]
    for part in ('100%', ' / 600', 'score ', 'env steps/s ', 'updates/s '):
        assert part in last, last
    assert re.search(r'train ratio [\d.]+ of 32', last)
    # The replay tells how full it is from time to time, not at the very end.
    assert re.search(r'replay [1-6]\d\d \(\d\.\d\d GB\)', last)
    assert re.search(r'(learner|environment|policy|replay)-bound: |balanced: ', last)
    assert read_records(tmp_path / 'metrics.jsonl')[-1]['step'] >= 600


# Says at once what else would be said if it took seconds.
EAGER = """
import sys
from embodied.logging import terminal
from embodied.run.shared import activities
terminal.PAUSE = 0.02
activities.LONG_SECONDS = 0.0
from dreamerv3.main import main
main(sys.argv[1:])
"""
TRAIN = ['--configs', 'debug', '--task', 'toy_reach', '--run.envs', '1']
TRAIN += ['--run.report_every', '0', '--run.save_every', '0', '--run.steps', '300']
# Tracing the programs takes long enough, but not if they are those of an earlier run.
ENVIRON = {'JAX_ENABLE_COMPILATION_CACHE': 'false', 'NO_COLOR': '1'}


def test_a_pipe_is_told_what_a_single_process_compiles(tmp_path):
    command = [sys.executable, '-c', EAGER, 'train', *TRAIN, '--logdir', str(tmp_path)]
    environ = {**os.environ, **ENVIRON}
    with subprocess.Popen(
        command, env=environ, stdout=subprocess.PIPE, text=True
    ) as process:
        compiling = re.compile(r'Compiling .*\btrain\b.* for \d+ s\n')
        assert any(map(compiling.fullmatch, process.stdout))
        process.kill()
