"""SLURM engine: the commands of a run as jobs of a SLURM cluster, through submitit.

One job has agent, replay and logger, looked after by their launcher. Environment
workers are the tasks of an array job that begins after it and asks SLURM where it runs.
"""

import shlex
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ...core.errors import ConfigError, RoleError
from .extras import require

__all__ = ['HEAD', 'Command', 'SlurmOptions', 'submit']

HEAD = '{head}'  # in commands of workers: the machine of the first job
SIGNAL_SECONDS = 120  # before the time limit, for a clean end


class SlurmOptions(NamedTuple):
    """The group `slurm` of the config."""

    local: bool
    partition: str
    minutes: int
    requeues: int
    port: int
    gpus: int
    cpus: int
    gb: int
    env_cpus: int
    env_gb: int
    extra: str


class Command(NamedTuple):
    """One job: what it runs and what it needs."""

    name: str
    argv: tuple[str, ...]
    cpus: int
    gpus: int
    gb: int


class Job:
    """Called with a command by the process that submitit starts in a job.

    head: number of the job whose machine is put in place of HEAD; '' on this machine.
    """

    def __init__(self, head: str = ''):
        self._head = head
        self._process: subprocess.Popen | None = None
        self._ended = threading.Event()

    def __reduce__(self) -> Any:
        return Job, (self._head,)

    def __call__(self, *argv: str) -> None:
        if any(HEAD in arg for arg in argv):
            host = _host_of(self._head) if self._head else 'localhost'
            argv = tuple(arg.replace(HEAD, host) for arg in argv)
        print('Running', shlex.join(argv), flush=True)
        self._process = process = subprocess.Popen(argv)
        # In a thread: a signal handler of the main thread waits for the end, too.
        threading.Thread(target=self._watch, args=(process,), daemon=True).start()
        self._ended.wait()
        if process.returncode:
            raise RoleError(f'{shlex.join(argv)} ended with {process.returncode}.')

    def checkpoint(self, *argv: str) -> Any:
        """Called by submitit when time is almost up: what to run in the next job."""
        if self._process is not None:
            self._process.terminate()
            self._ended.wait()
        return require('submitit', 'slurm').helpers.DelayedSubmission(self, *argv)

    def _watch(self, process: subprocess.Popen) -> None:
        process.wait()
        self._ended.set()


def submit(
    head: Command, workers: Sequence[Command], options: SlurmOptions, folder: Path
) -> list[Any]:
    """Submits the jobs, which log to `folder`; returns submitit's handles of them."""
    executor = _executor(options, folder)
    first = _update(executor, head, options).submit(Job(), *head.argv)
    on_slurm = not options.local
    if not workers:
        return [first]
    executor = _update(_executor(options, folder), workers[0], options)
    if on_slurm:
        executor.update_parameters(
            dependency=f'after:{first.job_id}', array_parallelism=len(workers)
        )
    commands = zip(*(worker.argv for worker in workers), strict=True)
    job = Job(first.job_id if on_slurm else '')
    return [first, *executor.map_array(job, *commands)]


def _executor(options: SlurmOptions, folder: Path) -> Any:
    submitit = require('submitit', 'slurm')
    if options.local:
        return submitit.LocalExecutor(folder)
    try:
        return submitit.SlurmExecutor(folder, max_num_timeout=options.requeues)
    except RuntimeError as error:
        raise ConfigError(
            f'{error} There is no srun here: submit from a machine of the cluster, or '
            'say --slurm.local True to run the same jobs on this machine.'
        ) from error


def _update(executor: Any, command: Command, options: SlurmOptions) -> Any:
    if options.local:
        executor.update_parameters(timeout_min=options.minutes)
        return executor
    pairs = [pair.partition('=') for pair in options.extra.split(',') if pair]
    executor.update_parameters(
        job_name=command.name,
        partition=options.partition or None,
        time=options.minutes,
        cpus_per_task=command.cpus,
        gpus_per_node=command.gpus or None,
        mem=f'{command.gb}GB',
        signal_delay_s=SIGNAL_SECONDS,
        stderr_to_stdout=True,
        additional_parameters={key: value for key, _, value in pairs},
    )
    return executor


def _host_of(job: str) -> str:
    """The machine on which a job runs."""
    command = ['squeue', '--noheader', '--jobs', job, '--format', '%B']
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    host = answer.stdout.strip()
    if not host or host == 'n/a':
        raise RoleError(
            f'Job {job}, which has the agent, does not run. Cancel this job, and give '
            'the command again.'
        )
    return host
