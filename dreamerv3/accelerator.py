"""The device that trains: named at the start, and refused if it is far too slow.

Where JAX has no plugin for an accelerator, a large agent is refused before the run's
folder exists; else the process with the agent asks JAX, which it alone imports.
"""

import importlib.util
import os
import sys
from importlib import metadata
from pathlib import Path

import elements

from embodied.core.errors import ConfigError
from embodied.processes import cpu

__all__ = ['announce', 'check', 'check_early', 'describe', 'only_cpu', 'prepare']

# Scripts with an agent that trains in this process.
TRAINING = ('train', 'train_eval', 'offline', 'parallel', 'parallel_agent')
LARGEST = 3072  # recurrent units that train on a CPU at a bearable speed: size25m
NVIDIA = Path('/proc/driver/nvidia/version')
PLATFORMS = 'JAX_PLATFORMS'  # JAX's own environment variable for the same choice
PLUGINS = 'jax_plugins'  # package and entry points of JAX's backends
TPU = 'libtpu'


def check_early(config: elements.Config) -> None:
    """Raises ConfigError for a large agent that can only get a CPU, without JAX."""
    trains_here = config.script in TRAINING and config.engine == 'local'
    if trains_here and not config.random_agent and not _has_plugin():
        _refuse_large(config)


def only_cpu(config: elements.Config) -> bool:
    """Whether a run trains on the CPU for sure, found out without JAX."""
    asked = config.jax.platform == 'cpu' or os.environ.get(PLATFORMS) == 'cpu'
    return asked or config.random_agent or not _has_plugin()


def prepare(config: elements.Config) -> None:
    """Chooses the platform of this process, says which device trains, and raises
    ConfigError if it is a CPU that the user has not asked for with a large agent."""
    import embodied.jax

    embodied.jax.setup(config.jax.platform, config.jax.cache)
    check(config)
    if not config.quiet:
        announce(config)


def check(config: elements.Config) -> None:
    """Raises ConfigError for a large agent if JAX has only a CPU."""
    import jax

    if jax.default_backend() == 'cpu':
        _refuse_large(config)


def _refuse_large(config: elements.Config) -> None:
    """Refuses an agent that is made for accelerators, unless the user insists."""
    insists = config.jax.platform != 'auto' or os.environ.get(PLATFORMS)
    units = config.agent.dyn.deter
    if insists or units <= LARGEST:
        return
    found = 'JAX finds no accelerator on this machine'
    if NVIDIA.exists() and not _has_plugin():
        found = 'This machine has an NVIDIA GPU, but JAX was installed without CUDA'
    raise ConfigError(
        f'{found}, and an agent of {units} recurrent units (the default is the preset '
        'size200m) takes minutes per update on a CPU. Add a smaller size to '
        '--configs: size1m or size12m, or tiny for the built-in tasks. For a GPU: pip '
        "install 'dreamer-parallel[cuda]'. --jax.platform cpu insists on the CPU."
    )


def _has_plugin() -> bool:
    """Whether JAX is installed with support for any accelerator."""
    packages = (PLUGINS, TPU)
    return bool(metadata.entry_points(group=PLUGINS)) or any(
        importlib.util.find_spec(name) is not None for name in packages
    )


def announce(config: elements.Config) -> None:
    """Prints one line about the devices of this process."""
    print(f'dreamer: training on {describe(config)}', file=sys.stderr)


def describe(config: elements.Config) -> str:
    """The devices of this process that an agent uses, in words."""
    import jax

    devices = jax.local_devices()
    used = config.jax.data * config.jax.fsdp
    kind = devices[0].device_kind
    if devices[0].platform == 'cpu':
        kind = f'the CPU ({cpu.count_cores()} cores)'
    count = f' ({used} of {len(devices)})' if len(devices) > 1 else ''
    acting = config.jax.policy_devices
    if acting:
        count += f', acting on {acting if acting == "cpu" else f"device {acting}"}'
    return f'{kind}{count} in {config.jax.compute_dtype}'
