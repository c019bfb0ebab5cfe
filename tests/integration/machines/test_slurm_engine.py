"""A run whose job is queued again: its environments come back with it."""

import contextlib
import json
import os
import signal

import psutil
import pytest
from watching import FolderWatch

from dreamerv3 import config as config_lib
from dreamerv3 import engines, main
from embodied import transport
from embodied.logging import read_records
from embodied.run.parallel.engines import slurm

FLAGS = ('--configs', 'debug', '--script=parallel', '--engine=slurm')
FLAGS += ('--random_agent=True', '--task=dummy_disc', '--run.envs=2')
FLAGS += ('--run.eval_envs=0', '--run.usage=False', '--run.log_every=0.5')
FLAGS += ('--slurm.local=True', '--slurm.env_cpus=2')
PATIENCE = 120.0  # seconds for a session to get going


@pytest.mark.long
def test_a_job_that_is_queued_again_goes_on_with_its_environments(tmp_path):
    port = transport.free_port()
    flags = [*FLAGS, f'--logdir={tmp_path}', f'--slurm.port={port}']
    config, _ = config_lib.resolve(flags)
    args = main.loop_args(config)
    options = slurm.SlurmOptions(**config.slurm)
    plan = engines.plan_slurm(config, args, options)
    with contextlib.closing(FolderWatch(tmp_path)) as watch:

        def records(name):
            path = tmp_path / name
            return read_records(path) if path.exists() else []

        def played(after):
            return any(x['step'] > after for x in records('scores.jsonl'))

        def ended():
            return [x['step'] for x in records('events.jsonl') if x['event'] == 'ended']

        job = slurm.submit(*plan, options, tmp_path / 'slurm')
        watch.await_that(lambda: played(0), PATIENCE)
        (task,) = psutil.Process(int(job.job_id)).children()
        task.send_signal(signal.SIGUSR2)  # as SLURM does when time is almost up
        (step,) = watch.await_that(ended, PATIENCE)
        watch.await_that(lambda: played(step), PATIENCE)
        os.kill(json.loads((tmp_path / 'lock').read_text())['pid'], signal.SIGTERM)
        job.result()
    assert len(ended()) == 2
