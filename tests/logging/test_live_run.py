"""What a person sees of a distributed run, whose logger is a process of its own."""

import re

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
