"""SLURM jobs: scripts as they are submitted, and a run by submitit on this machine."""

import os
import re
import shutil
import subprocess
import sys

import pytest

from dreamerv3 import config as config_lib
from dreamerv3 import engines, main
from embodied import transport
from embodied.core.errors import ConfigError, RoleError
from embodied.logging import read_records
from embodied.run.engines.slurm import HEAD, Job, SlurmOptions

FLAGS = ('--configs', 'debug', '--script=parallel', '--engine=slurm')


def resolve(logdir, *flags):
    return config_lib.resolve([*FLAGS, f'--logdir={logdir}', *flags])[0]


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    """A machine with the commands of SLURM, which number jobs instead of running them;
    job 1 runs on a machine called gpu7."""
    commands = {
        'srun': 'exit 1',
        'sbatch': 'echo "$@" >> {log}; echo Submitted batch job $(wc -l < {log})',
        'squeue': 'case "$*" in *"--jobs 1 "*) echo gpu7;; *) echo n/a;; esac',
    }
    for name, text in commands.items():
        path = tmp_path / 'bin' / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f'#!/bin/bash\n{text.format(log=tmp_path / "jobs")}\n')
        path.chmod(0o755)
    path = f'{tmp_path / "bin"}{os.pathsep}{os.environ["PATH"]}'
    monkeypatch.setenv('PATH', path)
    return tmp_path / 'logdir'


def test_the_scripts_are_valid_and_ask_for_what_the_options_say(cluster):
    flags = ('--run.envs=10', '--run.eval_envs=2', '--slurm.env_cpus=4')
    flags += ('--slurm.gpus=2', '--slurm.partition=fast', '--slurm.extra=account=lab')
    config = resolve(cluster, *flags)
    engines.submit(config, main.loop_args(config))
    scripts = sorted((cluster / 'slurm').rglob('*.sh'))
    # submitit leaves copies.
    texts = sorted({x.read_text() for x in scripts}, key=lambda text: 'array' in text)
    assert len(texts) == 2
    for line in ('gpus-per-node=2', 'cpus-per-task=8', 'mem=32GB', 'time=1440'):
        assert f'#SBATCH --{line}\n' in texts[0]
    for line in ('dependency=after:1', 'cpus-per-task=4', 'array=0-3%4'):
        assert f'#SBATCH --{line}\n' in texts[1]
    for line in ('partition=fast', 'account=lab'):
        assert all(f'#SBATCH --{line}\n' in text for text in texts)
    shellcheck = shutil.which('shellcheck', path=os.path.dirname(sys.executable))
    subprocess.run([shellcheck, '--shell=bash', *scripts], check=True)
    assert (cluster / 'keys' / 'client.json').exists()


def test_each_worker_has_its_environments(tmp_path):
    config = resolve(tmp_path, '--run.envs=10', '--run.eval_envs=2')
    options = SlurmOptions(**config.slurm)
    head, workers = engines.plan_slurm(config, main.loop_args(config), options)
    replicas = [worker.argv[-1] for worker in workers]
    assert replicas == [f'--replica={first}' for first in (0, 4, 8, 10)]
    parse = lambda argv: config_lib.resolve(argv[3:])[
        0
    ]  # without `python -m dreamerv3`
    assert parse(head.argv).run.actor_addr == '0.0.0.0:7000'
    assert parse(head.argv).run.remote_envs
    for worker in workers:
        given = parse(worker.argv)
        assert given.run.actor_addr == f'{HEAD}:7000'
        assert given.run.envs_per_worker == 4 and given.batch_size == config.batch_size


def test_a_worker_finds_the_machine_of_the_agent(cluster, capfd):
    Job('1')('echo', f'{HEAD}:7000')
    assert capfd.readouterr().out.splitlines()[-1] == 'gpu7:7000'
    with pytest.raises(RoleError, match='Job 2, which has the agent, does not run'):
        Job('2')('echo', HEAD)


def test_a_failed_command_fails_its_job():
    with pytest.raises(RoleError, match='ended with 3'):
        Job()('bash', '-c', 'exit 3')


def test_without_slurm_the_error_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv('PATH', str(tmp_path))
    config = resolve(tmp_path)
    with pytest.raises(ConfigError, match='--slurm.local True'):
        engines.submit(config, main.loop_args(config))


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
    assert re.match(r'Submitted \d+, \d+, \d+; ', run.stdout)
    ended = [
        x for x in read_records(tmp_path / 'events.jsonl') if x['event'] == 'ended'
    ]
    assert ended[-1]['step'] >= 300
