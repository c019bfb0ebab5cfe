"""Training from Python, sweeps, and what runs record about themselves."""

import json
import signal
import subprocess
import sys

import numpy as np
import psutil
import pytest

import dreamerv3
from dreamerv3 import provenance
from dreamerv3.commands import sweep
from dreamerv3.main import main
from embodied import envs
from embodied.core.errors import ConfigError
from embodied.logging import read_records

RANDOM = {'random_agent': True, 'logger.outputs': 'jsonl', 'run.log_every': -1}


def test_a_function_of_the_caller_is_trained_on_and_continued(tmp_path):
    size = 16

    def make_env(seed):
        return envs.Catch(size, seed=seed)

    call = {'logdir': tmp_path / 'run', 'configs': ['debug'], 'options': RANDOM}
    run = dreamerv3.train(make_env, steps=80, **call)
    assert run.logdir == tmp_path / 'run'
    assert run.steps == 80
    assert run.config.run.envs == 2
    assert len(run.scores) == len(run.episodes) == 10
    assert set(run.scores) <= {-1, 1}
    run = dreamerv3.train(make_env, steps=160, **call)
    assert run.steps == 160
    assert len(dreamerv3.Run(tmp_path / 'run').scores) == 20
    steps, values = run.metric('episode/length')
    assert (values == 7).all() and len(steps) == len(values)
    with pytest.raises(ConfigError, match='episode/score'):
        run.metric('episode/scores')


def test_named_tasks_can_be_trained_on_with_any_script(tmp_path):
    run = dreamerv3.train(
        task='toy_catch',
        logdir=tmp_path,
        steps=80,
        script='parallel',
        configs=['tiny', 'debug'],
        options=RANDOM,
    )
    assert run.config.script == 'parallel'
    assert len(run.scores)


@pytest.mark.parametrize('given', [{}, {'make_env': envs.Catch, 'task': 'toy_catch'}])
def test_there_is_one_environment_to_train_on(given):
    with pytest.raises(ConfigError, match='either make_env'):
        dreamerv3.train(**given)


def test_sweeps_run_all_tasks_with_all_seeds_and_compare_them(tmp_path, capsys):
    flags = ['--configs', 'tiny', 'debug', '--run.steps=80', '--random_agent=True']
    flags += ['--logger.outputs', 'jsonl', '--logdir', str(tmp_path)]
    tasks = ['toy_catch', 'toy_reach']
    command = ['sweep', *flags, '--task', *tasks, '--seeds', '2', '--at-once', '2']
    assert main(command) == 0
    out = capsys.readouterr().out
    assert '4 runs, 2 at a time' in out and '4 of 4' in out
    summary = json.loads((tmp_path / 'summary.json').read_text())
    assert [(e['task'], e['seed'], e['state']) for e in summary] == [
        (task, seed, 'finished') for seed in (0, 1) for task in tasks
    ]
    run = dreamerv3.Run(tmp_path / 'toy_catch-1')
    scores = run.scores
    steps = np.array([episode['step'] for episode in run.episodes])
    last = scores[steps >= 0.9 * steps[-1]]
    assert summary[2]['score'] == pytest.approx(last.mean(), abs=1e-4)
    seeds = {dreamerv3.Run(tmp_path / f'toy_catch-{i}').config.seed for i in (0, 1)}
    assert seeds == {0, 1}
    assert main(command) == 0  # nothing left to do
    assert (dreamerv3.Run(tmp_path / 'toy_catch-1').scores == scores).all()


def test_runs_of_a_sweep_that_use_up_their_time_are_complete(tmp_path):
    command = ['sweep', '--task', 'toy_catch', '--configs', 'tiny', 'debug']
    command += ['--run.duration=0.5', '--random_agent=True', '--logdir', str(tmp_path)]
    assert main(command) == 0
    (entry,) = json.loads((tmp_path / 'summary.json').read_text())
    assert (entry['state'], entry['reason']) == ('stopped', 'run.duration')
    assert main(command) == 0  # nothing left to do
    (entry,) = json.loads((tmp_path / 'summary.json').read_text())
    assert (entry['state'], entry['reason']) == ('stopped', 'run.duration')


def test_a_run_that_fails_does_not_end_the_sweep(tmp_path, capsys):
    command = ['sweep', '--task', 'toy_cach', 'toy_catch', '--configs', 'tiny', 'debug']
    command += ['--run.steps=40', '--random_agent=True', '--logdir', str(tmp_path)]
    assert main(command) == 1
    out = capsys.readouterr().out
    assert 'toy_cach seed 0: failed with 2' in out
    assert 'toy_catch seed 0: finished' in out
    assert 'There is no task' in (tmp_path / 'toy_cach-0.log').read_text()


def test_a_signal_ends_the_runs_of_a_sweep_and_starts_no_more(tmp_path):
    command = [sys.executable, '-m', 'dreamerv3', 'sweep', '--task', 'dummy_disc']
    command += ['--seeds', '2', '--configs', 'debug', '--random_agent=True']
    process = subprocess.Popen(
        [*command, '--logdir', str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline().startswith('2 runs')
    started = read_until_started(tmp_path / 'dummy_disc-0')
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=120)
    assert started
    assert 'dummy_disc seed 0: stopped' in out
    summary = json.loads((tmp_path / 'summary.json').read_text())
    ends = [(entry['state'], entry['reason']) for entry in summary]
    assert ends == [('stopped', 'SIGINT'), ('not started', '')]
    assert process.returncode == 1


def test_runs_end_when_their_sweep_is_killed(tmp_path):
    command = [sys.executable, '-m', 'dreamerv3', 'sweep', '--task', 'dummy_disc']
    command += ['--configs', 'debug', '--random_agent=True', '--logdir', str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    assert read_until_started(tmp_path / 'dummy_disc-0')
    children = psutil.Process(process.pid).children(recursive=True)
    assert any('train' in child.cmdline() for child in children)
    process.kill()
    process.wait()
    assert psutil.wait_procs(children, timeout=60)[1] == []


def read_until_started(folder, limit=60.0):
    """Waits for the run's own word, which it prints into its log."""
    log = folder.with_name(f'{folder.name}.log')
    command = ['timeout', str(limit), 'tail', '-n', '+1', '-F', str(log)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as tail:
        found = any('step' in line for line in tail.stdout)
        tail.terminate()
    return found


@pytest.mark.parametrize(
    'flags, words',
    [
        (['--task', 'toy_catch', '--seeds', '0'], 'at least 1'),
        (['--task', 'toy_catch', 'toy_catch'], 'twice'),
    ],
)
def test_sweeps_that_make_no_sense_are_refused(flags, words):
    with pytest.raises(ConfigError, match=words):
        sweep.main(flags)


def test_runs_record_what_they_were_made_with(tmp_path):
    flags = ['--configs', 'tiny', 'debug', '--run.steps=40', '--random_agent=True']
    for _ in range(2):
        assert main(['train', *flags, '--logdir', str(tmp_path)]) == 0
    first, second = read_records(tmp_path / 'provenance.jsonl')
    assert first['packages']['numpy'] == np.__version__
    assert first['cores'] >= 1 and first['memory_gb'] > 0
    assert first.keys() == second.keys() == provenance.describe().keys()
    assert len(first['commit'].rstrip('+')) in (0, 40)
