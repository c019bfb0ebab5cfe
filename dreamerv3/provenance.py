"""Provenance: what a run was made with, so that its scores can be judged later.

`provenance.jsonl` in the folder of a run has one line per start: versions of Python and
packages, the commit of this code, command line, processor, memory and accelerators. The
options are in config.yaml. The file of an own agent is named with its hash.
"""

import hashlib
import platform
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

from embodied.logging.jsonl import LineFile
from embodied.processes import cpu

from . import module_options

__all__ = ['describe', 'record']

FILE = 'provenance.jsonl'
GIGABYTE = 1 << 30
TIMEOUT = 20.0  # seconds for a program that describes the machine

# Packages that scores may depend on.
PACKAGES = (
    'dreamer-parallel',
    'ale-py',
    'bsuite',
    'crafter',
    'dm_control',
    'elements',
    'equinox',
    'gymnasium',
    'jax',
    'jaxlib',
    'memory-maze',
    'minigrid',
    'mujoco',
    'numpy',
    'optax',
    'pillow',
    'procgen-mirror',
    'pyzmq',
)


def record(logdir: Path, module: str = '') -> None:
    """Appends a line to the file of a run. module: that of an own agent."""
    file = LineFile(logdir / FILE)
    file.append(describe(module))
    file.close()


def describe(module: str = '') -> dict[str, Any]:
    """Versions, commit, command and hardware of this process."""
    own = module_options.source(module) if module else None
    return {
        **({'agent_file': str(own), 'agent_sha256': _hash(own)} if own else {}),
        'command': sys.argv,
        'python': platform.python_version(),
        'packages': _versions(),
        'commit': _commit(),
        'system': platform.platform(),
        'host': platform.node(),
        'processor': _processor(),
        'cores': cpu.count_cores(),
        'memory_gb': round(psutil.virtual_memory().total / GIGABYTE, 1),
        'accelerators': _accelerators(),
    }


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _versions() -> dict[str, str]:
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue  # Most suites are optional.
    return versions


def _commit() -> str:
    """Commit of the working copy that this file is in, with `+` if it was changed."""
    folder = Path(__file__).parent
    commit = _output('git', '-C', str(folder), 'rev-parse', 'HEAD').strip()
    if not commit:
        return ''
    status = _output('git', '-C', str(folder), 'status', '--porcelain', '-uno')
    return f'{commit}+' if status.strip() else commit


def _processor() -> str:
    info = Path('/proc/cpuinfo')
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith('model name'):
                return line.partition(':')[2].strip()
    return platform.processor() or platform.machine()


def _accelerators() -> list[str]:
    query = '--query-gpu=name,memory.total,driver_version'
    listed = _output('nvidia-smi', query, '--format=csv,noheader')
    return [line.strip() for line in listed.splitlines() if line.strip()]


def _output(program: str, *args: str) -> str:
    """What a program prints; nothing if it is not there or has nothing to say."""
    if not shutil.which(program):
        return ''
    done = subprocess.run(
        [program, *args], capture_output=True, text=True, timeout=TIMEOUT
    )
    return done.stdout if done.returncode == 0 else ''
