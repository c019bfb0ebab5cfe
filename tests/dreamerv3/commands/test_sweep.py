"""Sweeps: runs of tasks, options and seeds, their ends and their table."""

import asyncio
import json
import os
import signal
import subprocess
import sys

import numpy as np
import psutil
import pytest

import dreamerv3
from dreamerv3 import config as config_lib
from dreamerv3.commands import sweep
from dreamerv3.commands.sweep import command as sweep_command
from dreamerv3.commands.sweep import score_table
from dreamerv3.commands.sweep.jobs import jobs_of
from dreamerv3.commands.sweep.places import MEMORY, Places
from dreamerv3.dashboard.runs.options import group_key, read_options
from dreamerv3.main import main
from embodied.core.errors import ConfigError
from embodied.processes.folder_lock import FolderLock

FLAGS = ['--configs', 'tiny', 'debug', '--random_agent=True']
FLAGS += ['--logger.outputs', 'jsonl', '--run.envs=2']
VARY = ['--vary', 'batch_size=4,6', 'run.train_ratio=8,16']


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
    assert '2 are not finished; the same command goes on' in out
    assert process.returncode == 1


def test_a_signal_reaches_a_run_that_is_being_started(tmp_path, monkeypatch):
    create, stop = asyncio.create_subprocess_exec, sweep_command._Sweep._stop
    heard = asyncio.Event()

    def stop_and_tell(self, number):
        stop(self, number)
        heard.set()

    async def create_interrupted(*args, **kwargs):
        process = await create(*args, **kwargs)
        signal.raise_signal(signal.SIGINT)
        await heard.wait()
        return process

    monkeypatch.setattr(sweep_command._Sweep, '_stop', stop_and_tell)
    monkeypatch.setattr(asyncio, 'create_subprocess_exec', create_interrupted)
    flags = [*FLAGS, '--run.duration=20', '--logdir', str(tmp_path)]
    assert main(['sweep', '--task', 'dummy_disc', '--seeds', '2', *flags]) == 1
    ends = [(entry['state'], entry['reason']) for entry in summary_of(tmp_path)]
    assert ends[0] in [('not started', ''), ('stopped', 'SIGINT')]
    assert ends[1] == ('not started', '')


def test_a_second_sweep_in_a_folder_is_refused(tmp_path, capsys):
    with FolderLock(tmp_path):
        flags = [*FLAGS, '--run.steps=8', '--logdir', str(tmp_path)]
        assert main(['sweep', '--task', 'dummy_disc', *flags]) == 2
    assert f'{tmp_path} is in use by process {os.getpid()}' in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ['lock']


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


def summary_of(folder):
    return json.loads((folder / 'summary.json').read_text())


def test_varied_options_have_runs_and_rows_of_their_own(tmp_path, capsys):
    command = ['sweep', *FLAGS, '--run.steps=80', '--task=toy_catch', *VARY]
    assert main([*command, '--at-once=2', f'--logdir={tmp_path}']) == 0
    entries = summary_of(tmp_path)
    assert [entry['run'] for entry in entries] == [
        f'toy_catch-batch_size={size}-train_ratio={ratio}-0'
        for size in (4, 6)
        for ratio in (8, 16)
    ]
    for entry in entries:
        config = dreamerv3.Run(tmp_path / entry['run']).config
        assert str(config.batch_size) == entry['options']['batch_size']
        assert config.run.train_ratio == float(entry['options']['run.train_ratio'])
    lines = capsys.readouterr().out.splitlines()
    head = next(i for i, line in enumerate(lines) if line.startswith('task'))
    assert lines[head].split()[:4] == ['task', 'batch_size', 'train_ratio', 'seeds']
    rows = [line.split() for line in lines[head + 1 : head + 5]]
    assert {(row[1], row[2]) for row in rows} == {
        ('4', '8'),
        ('4', '16'),
        ('6', '8'),
        ('6', '16'),
    }
    means = [float(row[4]) for row in rows]
    assert means == sorted(means, reverse=True)
    # `dreamer watch` tells the runs apart by their options.
    paths = [tmp_path / entry['run'] / 'config.yaml' for entry in entries]
    assert len({group_key(read_options(path)) for path in paths}) == 4


def test_finished_runs_are_left_alone_and_failed_ones_are_tried_again(tmp_path, capsys):
    command = ['sweep', *FLAGS, '--run.steps=40', '--task', 'toy_catch', 'toy_cach']
    command += [f'--logdir={tmp_path}']
    assert main(command) == 1
    started = (tmp_path / 'toy_catch-0' / 'events.jsonl').read_text()
    said = (tmp_path / 'toy_cach-0.log').read_text()
    capsys.readouterr()
    assert main([*command, '--skip-failed']) == 1
    out = capsys.readouterr().out
    assert '1 of them have finished' in out
    assert 'are left alone: toy_cach-0' in out
    assert '1 failed: toy_cach-0' in out
    assert (tmp_path / 'toy_cach-0.log').read_text() == said
    assert main(command) == 1
    assert 'are tried again' in capsys.readouterr().out
    assert len((tmp_path / 'toy_cach-0.log').read_text()) > len(said)
    assert (tmp_path / 'toy_catch-0' / 'events.jsonl').read_text() == started
    command[command.index('--run.steps=40')] = '--run.steps=80'
    assert main([*command, '--skip-failed']) == 1
    assert dreamerv3.Run(tmp_path / 'toy_catch-0').steps == 80


def test_a_sweep_that_was_ended_goes_on(tmp_path):
    command = [sys.executable, '-m', 'dreamerv3', 'sweep', '--task', 'dummy_disc']
    command += ['--configs', 'debug', '--random_agent=True', '--at-once=2']
    command += ['--vary', 'batch_size=4,6', '--logdir']
    process = subprocess.Popen(
        [*command, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    names = [f'dummy_disc-batch_size={size}-0' for size in (4, 6)]
    started = [read_until_started(tmp_path / name) for name in names]
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=120)
    assert all(started)
    steps = [entry['steps'] for entry in summary_of(tmp_path)]
    ends = {(entry['state'], entry['reason']) for entry in summary_of(tmp_path)}
    assert ends == {('stopped', 'SIGINT')}
    limit = f'--run.steps={max(steps) + 100}'
    assert main([*command[3:], str(tmp_path), limit]) == 0
    assert all(entry['state'] == 'finished' for entry in summary_of(tmp_path))


@pytest.mark.parametrize(
    ('vary', 'words'),
    [
        (['agent.actnt=1,2'], 'Did you mean --agent.actent'),
        (['agent.actent=a,b'], 'agent.actent is a number'),
        (['agent.actent=1e-4,0.0001'], 'same options: actent=0.0001'),
        (['batch_size=4'], 'varied as well'),
    ],
)
def test_settings_that_cannot_be_are_refused_before_anything_starts(
    tmp_path, vary, words
):
    command = ['--task=toy_catch', '--batch_size=8', '--vary', *vary]
    with pytest.raises(ConfigError, match=words):
        sweep.main([*command, f'--logdir={tmp_path}/new'])
    assert not (tmp_path / 'new').exists()


def test_presets_can_be_varied_and_come_after_those_of_all_runs(tmp_path):
    settings = [(('configs', 'size1m'),), (('configs', 'size12m'),)]
    jobs = jobs_of(tmp_path, ['toy_catch'], settings, 1, ['--configs', 'crafter'])
    configs = [config_lib.resolve(job.argv)[0] for job in jobs]
    assert [config.agent.dyn.deter for config in configs] == [512, 2048]
    assert all(config.run.train_ratio == 512 for config in configs)
    assert jobs[0].logdir.name == 'toy_catch-configs=size1m-0'


def test_folders_have_names_that_a_disk_takes_and_that_differ(tmp_path):
    name = 'run.from_checkpoint'
    settings = [((name, f'{"a" * 300}/{x}'),) for x in ('x y', 'x/y')]
    jobs = jobs_of(tmp_path, ['gym:A/B-v0'], settings, 1, [])
    names = [job.logdir.name for job in jobs]
    assert len(set(names)) == 2
    assert all(len(name) < 200 and '/' not in name for name in names)


def test_runs_at_a_time_share_the_memory_of_a_gpu_or_the_cores():
    cores = frozenset({2, 3, 5, 7, 11})
    alone = Places(1, True, {}, cores)
    assert MEMORY not in alone.environ and alone.text == ''
    gpu = Places(3, True, {}, cores)
    assert gpu.environ == {MEMORY: '0.300'}
    assert 'each with 0.300 of the memory' in gpu.text
    assert gpu.cores == [frozenset()] * 3
    own = Places(3, True, {MEMORY: '0.2'}, cores)  # the user has decided
    assert 'each with 0.2 of' in own.text
    cpu = Places(2, False, {}, cores)
    assert cpu.cores == [{2, 3}, {5, 7}]
    assert 'each on 2 CPU cores' in cpu.text
    many = Places(6, False, {}, cores)
    assert many.cores == [frozenset()] * 6
    assert 'share 5 CPU cores' in many.text


def test_each_run_at_a_time_uses_its_cores_only():
    own = frozenset(os.sched_getaffinity(0))
    places = Places(1, False, {}, own)
    core = frozenset({min(own)})
    code = 'import os; print(os.sched_getaffinity(0))'
    with places.binding(core):
        out = subprocess.check_output([sys.executable, '-c', code], text=True)
    assert out.strip() == str(set(core))
    assert os.sched_getaffinity(0) == own


def test_the_table_has_the_best_setting_of_each_task_first():
    def entry(task, ratio, seed, score):
        options = {'run.train_ratio': ratio}
        return {'task': task, 'options': options, 'seed': seed, 'score': score}

    entries = [
        entry('b', '32', 0, 1.0),
        entry('b', '64', 0, 4.0),
        entry('b', '128', 0, None),
        entry('a', '32', 0, 9.0),
        entry('b', '32', 1, 5.0),
        entry('b', '64', 1, None),
    ]
    rows = score_table.rows_of(entries)
    found = [(r['task'], r['train_ratio'], r['seeds'], r.get('mean')) for r in rows]
    assert found == [
        ('b', '64', 1, 4.0),
        ('b', '32', 2, 3.0),
        ('b', '128', 0, None),
        ('a', '32', 1, 9.0),
    ]
    assert (rows[1]['std'], rows[1]['min'], rows[1]['max']) == (2.0, 1.0, 5.0)
    assert score_table.to_text(rows).splitlines() == [
        'task  train_ratio  seeds  mean  std  min  max',
        'b     64               1     4    0    4    4',
        'b     32               2     3    2    1    5',
        'b     128              0',
        'a     32               1     9    0    9    9',
    ]
