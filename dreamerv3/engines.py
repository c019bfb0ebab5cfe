"""Engines by option: where the roles of `dreamer parallel` are started."""

import sys
from pathlib import Path

import elements

from embodied.core.errors import ConfigError
from embodied.run.parallel.engines import slurm
from embodied.run.parallel.engines.base import Engine
from embodied.run.parallel.settings import ParallelSettings, WorkerPlan
from embodied.transport import keys

from . import config as config_lib

__all__ = ['LOCAL', 'SLURM', 'check', 'make_engine', 'plan_slurm', 'submit']

LOCAL, RAY, SLURM = 'local', 'ray', 'slurm'
COMMAND = (sys.executable, '-m', 'dreamerv3')


def check(config: elements.Config) -> None:
    """Refuses an engine for a command that starts no roles."""
    joins = config.engine == RAY and config.script == 'parallel_envs'
    if config.engine != LOCAL and config.script != 'parallel' and not joins:
        raise ConfigError(
            f'--engine {config.engine} starts the roles of `dreamer parallel`; '
            f'{config.script} has none. Leave it away.'
        )


def make_engine(config: elements.Config) -> Engine | None:
    """The engine that the launcher of a distributed run uses; None for this machine."""
    if config.engine != RAY:
        return None
    from embodied.run.parallel.engines.ray.engine import RayEngine

    folders = [Path(config.logdir)]
    if config.replay.dir:
        folders.append(Path(config.replay.dir).expanduser())
    return RayEngine(config.ray, folders)


def submit(config: elements.Config, args: elements.Config) -> None:
    """Submits the jobs of a run to SLURM; args: as the loops take them."""
    options = slurm.SlurmOptions(**config.slurm)
    folder = Path(config.logdir)
    if not (options.local or (folder / 'keys').exists()):
        keys.create(folder / 'keys')
    head, workers = plan_slurm(config, args, options)
    job = slurm.submit(head, workers, options, folder / 'slurm')
    print(f'Submitted job {job.job_id}, which submits its workers; logs: {folder}.')
    print(f'dreamer status {folder} shows how the run is doing.')
    if options.local:
        job.result()


def plan_slurm(
    config: elements.Config, args: elements.Config, options: slurm.SlurmOptions
) -> tuple[slurm.Command, list[slurm.Command]]:
    """The command of the job with the agent, and those of environment workers."""
    here = 'localhost' if options.local else '0.0.0.0'
    config = config.update(engine=LOCAL)
    config = config.update({'run.remote_envs': True})
    if not config.run.envs_per_worker:
        config = config.update({'run.envs_per_worker': options.env_cpus})
        args = elements.Config({**args, 'envs_per_worker': options.env_cpus})
    flags = config_lib.flags(config.update(script='parallel'))
    addr = f'--run.actor_addr={here}:{options.port}'
    needs = options.cpus, options.gpus, options.gb
    head = slurm.Command('dreamer-agent', (*COMMAND, *flags, addr), *needs)
    settings = ParallelSettings.read(args)
    flags = config_lib.flags(config.update(script='parallel_env'))
    addr = f'--run.actor_addr={slurm.HEAD}:{options.port}'
    needs = options.env_cpus, 0, options.env_gb

    def worker(plan: WorkerPlan) -> slurm.Command:
        first = f'--run.first_env={plan.envids[0]}'
        argv = (*COMMAND, *flags, addr, first)
        return slurm.Command('dreamer-env', argv, *needs)

    return head, [worker(plan) for plan in settings.workers]
