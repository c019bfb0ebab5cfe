"""Devices: which accelerators the environments of a worker see."""

import os

from ....core.errors import ConfigError
from ..settings import ParallelSettings, WorkerPlan

__all__ = ['assign']


def assign(settings: ParallelSettings, plan: WorkerPlan) -> None:
    """Sets the variables that JAX, torch and simulators read when they are imported.

    JAX in environments uses the CPU unless the worker has a device of its own, and
    leaves memory to the agent. What the user has set stays.
    """
    os.environ.setdefault('XLA_PYTHON_CLIENT_PREALLOCATE', 'false')
    names = [name.strip() for name in settings.env_devices.split(',') if name.strip()]
    if not names:
        os.environ.setdefault('JAX_PLATFORMS', 'cpu')
        return
    if not all(name.isdigit() for name in names):
        raise ConfigError(
            f"run.env_devices='{settings.env_devices}' must list numbers of devices, "
            f"as 'nvidia-smi -L' shows them, for example 1,2."
        )
    worker = plan.indices[0] // (settings.envs_per_worker or len(plan.indices))
    os.environ['CUDA_VISIBLE_DEVICES'] = names[worker % len(names)]
