"""SLURM jobs: scripts as they are submitted, and a run by submitit on this machine."""

import os
import shutil
import subprocess
import sys

import pytest
import submitit

from dreamerv3 import config as config_lib
from dreamerv3 import engines, loops
from embodied import transport
from embodied.core.errors import ConfigError, RoleError
from embodied.logging import read_records
from embodied.run.parallel.engines.slurm import HEAD, Head, Job, SlurmOptions
from embodied.run.parallel.settings import FIRST_EVAL_ENV

FLAGS = ('--configs', 'debug', '--script=parallel', '--engine=slurm')


def resolve(logdir, *flags):
    return config_lib.resolve([*FLAGS, f'--logdir={logdir}', *flags])[0]


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    """A machine called gpu7 with the commands of SLURM, which note jobs instead of
    running them."""
    commands = {
        'srun': 'exit 1',
        'sbatch': 'echo "$@" >> {log}; echo Submitted batch job $(wc -l < {log})',
        'scancel': 'echo "$@" >> {log}.canceled',
    }
    for name, text in commands.items():
        path = tmp_path / 'bin' / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f'#!/bin/bash\n{text.format(log=tmp_path / "jobs")}\n')
        path.chmod(0o755)
    path = f'{tmp_path / "bin"}{os.pathsep}{os.environ["PATH"]}'
    monkeypatch.setenv('PATH', path)
    monkeypatch.setenv('SLURMD_NODENAME', 'gpu7')
    return tmp_path / 'logdir'


def make_head(logdir, *flags):
    config = resolve(logdir, '--run.envs=10', '--run.eval_envs=2', *flags)
    options = SlurmOptions(**config.slurm)
    _, workers = engines.plan_slurm(config, loops.loop_args(config), options)
    return Head(workers, options, logdir / 'slurm')


def canceled(logdir):
    path = logdir.parent / 'jobs.canceled'
    return path.read_text().splitlines() if path.exists() else []


def test_the_scripts_are_valid_and_ask_for_what_the_options_say(cluster):
    flags = ('--run.envs=10', '--run.eval_envs=2', '--slurm.env_cpus=4')
    flags += ('--slurm.gpus=2', '--slurm.partition=fast', '--slurm.extra=account=lab')
    config = resolve(cluster, *flags)
    engines.submit(config, loops.loop_args(config))
    make_head(cluster, *flags)('true')
    scripts = sorted((cluster / 'slurm').rglob('*.sh'))
    # submitit leaves copies.
    texts = sorted({x.read_text() for x in scripts}, key=lambda text: 'array' in text)
    assert len(texts) == 2
    for line in ('gpus-per-node=2', 'cpus-per-task=8', 'mem=32GB', 'time=1440'):
        assert f'#SBATCH --{line}\n' in texts[0]
    for line in ('cpus-per-task=4', 'array=0-3%4'):
        assert f'#SBATCH --{line}\n' in texts[1]
    for line in ('partition=fast', 'account=lab'):
        assert all(f'#SBATCH --{line}\n' in text for text in texts)
    shellcheck = shutil.which('shellcheck', path=os.path.dirname(sys.executable))
    subprocess.run([shellcheck, '--shell=bash', *scripts], check=True)
    assert (cluster / 'keys' / 'client.json').exists()


def test_workers_go_to_the_machine_of_the_agent_and_are_there_as_long_as_it(cluster):
    head = make_head(cluster, '--slurm.env_cpus=4')
    head('bash', '-c', f'test ! -e {cluster.parent}/jobs.canceled')
    assert canceled(cluster) == ['--quiet 1_0 1_1 1_2 1_3']
    (path, *_) = (cluster / 'slurm').glob('1_0_submitted.pkl')
    job = submitit.core.utils.DelayedSubmission.load(path)
    assert '--run.actor_addr=gpu7:7000' in job.args


def test_workers_of_a_machine_that_has_died_are_canceled(cluster):
    flags = ('--slurm.env_cpus=16',)
    make_head(cluster, *flags)._submit()
    make_head(cluster, *flags)('true')
    assert canceled(cluster) == ['--quiet 1_0 1_1', '--quiet 2_0 2_1']


def test_each_worker_has_its_environments(tmp_path):
    config = resolve(tmp_path, '--run.envs=10', '--run.eval_envs=2')
    options = SlurmOptions(**config.slurm)
    head, workers = engines.plan_slurm(config, loops.loop_args(config), options)
    begins = [worker.argv[-1] for worker in workers]
    assert begins == [f'--run.first_env={first}' for first in (0, 4, 8, FIRST_EVAL_ENV)]
    parse = lambda argv: config_lib.resolve(argv[3:])[
        0
    ]  # without `python -m dreamerv3`
    assert parse(head.argv).run.actor_addr == '0.0.0.0:7000'
    assert parse(head.argv).run.remote_envs
    for worker in workers:
        given = parse(worker.argv)
        assert given.run.actor_addr == f'{HEAD}:7000'
        assert given.run.envs_per_worker == 4 and given.batch_size == config.batch_size


def test_a_failed_command_fails_its_job():
    with pytest.raises(RoleError, match='ended with 3'):
        Job()('bash', '-c', 'exit 3')


def test_without_slurm_the_error_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv('PATH', str(tmp_path))
    config = resolve(tmp_path)
    with pytest.raises(ConfigError, match='--slurm.local True'):
        engines.submit(config, loops.loop_args(config))


def test_submitit_runs_the_jobs_on_this_machine(tmp_path):
    flags = ('--random_agent=True', '--task=dummy_disc', '--run.envs=3')
    flags += ('--run.eval_envs=0', '--run.steps=300')
    flags += ('--slurm.local=True', '--slurm.env_cpus=2')
    flags += (f'--slurm.port={transport.free_port()}', '--run.usage=False')
    command = [sys.executable, '-m', 'dreamerv3', *FLAGS, *flags]
    run = subprocess.run(
        [*command, f'--logdir={tmp_path}'], capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith('Submitted job ')
    ended = [
        x for x in read_records(tmp_path / 'events.jsonl') if x['event'] == 'ended'
    ]
    assert ended[-1]['step'] >= 300
