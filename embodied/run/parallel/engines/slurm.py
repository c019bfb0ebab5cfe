"""SLURM engine: the commands of a run as jobs of a SLURM cluster, through submitit.

One job runs agent, replay, logger and their launcher. Environment workers are the tasks
of an array job. The first job submits it whenever it begins, since its machine may not
be the same as before.
"""

import os
import shlex
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ....core.errors import ConfigError, RoleError
from ....core.files import write_whole
from .optional_packages import require

__all__ = ['HEAD', 'Command', 'Head', 'Job', 'SlurmOptions', 'submit']

HEAD = '{head}'  # in commands of workers: the machine of the first job
NODE = 'SLURMD_NODENAME'  # variable with the name of the machine of a job
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
    """Runs a command; called by the process that submitit starts in a job."""

    def __init__(self) -> None:
        self._process: subprocess.Popen | None = None
        self._ended = threading.Event()

    def __reduce__(self) -> Any:
        return type(self), ()

    def __call__(self, *argv: str) -> None:
        print('Running', shlex.join(argv), flush=True)
        self._process = process = subprocess.Popen(argv)
        # In a thread, since a signal handler of the main thread waits as well.
        threading.Thread(target=self._watch, args=(process,), daemon=True).start()
        try:
            self._ended.wait()
        finally:
            process.terminate()  # if we were interrupted
        if process.returncode:
            raise RoleError(f'{shlex.join(argv)} ended with {process.returncode}.')

    def checkpoint(self, *argv: str) -> Any:
        """What the next job runs; called by submitit when time is almost over."""
        if self._process is not None:
            self._process.terminate()
            self._ended.wait()
        return require('submitit', 'slurm').helpers.DelayedSubmission(self, *argv)

    def _watch(self, process: subprocess.Popen) -> None:
        process.wait()
        self._ended.set()


class Head(Job):
    """The job with the agent, which submits the workers.

    When it ends, whether it is queued again or not, the workers end as well. Those that
    do not, because they are still in the queue or the machine of the agent has failed,
    are canceled.
    """

    def __init__(self, workers: Sequence[Command], options: SlurmOptions, folder: Path):
        super().__init__()
        self._workers = tuple(workers)
        self._options = options
        self._folder = folder
        self._submitted = folder / 'workers'  # file with the ids of their jobs
        self._jobs: list[Any] = []

    def __reduce__(self) -> Any:
        return Head, (self._workers, self._options, self._folder)

    def __call__(self, *argv: str) -> None:
        self._submit()
        try:
            super().__call__(*argv)
        finally:
            self._cancel()

    def checkpoint(self, *argv: str) -> Any:
        submission = super().checkpoint(*argv)
        self._cancel()  # SLURM ends this job as soon as it is queued again.
        return submission

    def _submit(self) -> None:
        if self._submitted.exists():
            _cancel(self._submitted.read_text().split())
        if not self._workers:
            return
        options = self._options
        host = 'localhost' if options.local else os.environ[NODE]
        argvs = [[x.replace(HEAD, host) for x in y.argv] for y in self._workers]
        with require('submitit', 'slurm').helpers.clean_env():
            executor = _update(
                _executor(options, self._folder), self._workers[0], options
            )
            if not options.local:
                executor.update_parameters(array_parallelism=len(argvs))
            self._jobs = executor.map_array(Job(), *zip(*argvs, strict=True))
        if not options.local:
            write_whole(self._submitted, ' '.join(job.job_id for job in self._jobs))

    def _cancel(self) -> None:
        if self._options.local:
            for job in self._jobs:
                job.cancel()
        elif self._jobs:
            _cancel([job.job_id for job in self._jobs])
            self._submitted.unlink()
        self._jobs = []


def submit(
    head: Command, workers: Sequence[Command], options: SlurmOptions, folder: Path
) -> Any:
    """Submits the first job, which logs to `folder`; returns its handle."""
    executor = _update(_executor(options, folder), head, options)
    return executor.submit(Head(workers, options, folder), *head.argv)


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


def _cancel(jobs: Sequence[str]) -> None:
    """Cancels jobs, some of which may have ended."""
    subprocess.run(['scancel', '--quiet', *jobs], check=True)
