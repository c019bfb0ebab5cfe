"""Rendering for MuJoCo: which library draws, decided before MuJoCo is loaded."""

import importlib
import os
import subprocess
import sys
from typing import Any

from ..core.errors import ConfigError
from .extras import require

__all__ = ['choose', 'load_suite']

VARIABLE = 'MUJOCO_GL'
NONE = 'disabled'
BACKENDS = ('egl', 'osmesa')  # on the GPU; on the CPU
PROBE = 'import mujoco; mujoco.GLContext(64, 64).make_current()'
PROBE_TIMEOUT = 60.0  # seconds

HELP = (
    'Images of MuJoCo need a library that draws without a screen, and neither EGL nor '
    'OSMesa works here. On Debian and Ubuntu: apt-get install libegl1 (with a GPU) or '
    'apt-get install libosmesa6 (without). Tasks without images need neither: '
    '--env.dmc.image False --env.dmc.proprio True.'
)


def load_suite(draws: bool) -> Any:
    """The module `dm_control.suite`, with a renderer if `draws`, else without any.

    MuJoCo reads its variable when it is loaded, so one process has one answer.
    """
    if draws:
        _set_backend()
        return importlib.import_module('dm_control.suite')
    require('dm_control', 'dmc')
    unset = VARIABLE not in os.environ and 'mujoco' not in sys.modules
    if unset:
        os.environ[VARIABLE] = NONE
    try:
        return importlib.import_module('dm_control.suite')
    finally:
        if unset:  # Child processes decide for themselves.
            del os.environ[VARIABLE]


def choose() -> str:
    """The first library that can draw here, found out in a process of its own."""
    for backend in BACKENDS:
        done = subprocess.run(
            [sys.executable, '-c', PROBE],
            env={**os.environ, VARIABLE: backend},
            capture_output=True,
            timeout=PROBE_TIMEOUT,
        )
        if done.returncode == 0:
            return backend
    raise ConfigError(HELP)


def _set_backend() -> None:
    require('dm_control', 'dmc')
    if VARIABLE in os.environ:
        return
    if 'mujoco' in sys.modules:
        raise ConfigError(
            'MuJoCo was loaded in this process for a task without images and cannot '
            f'draw any more. Use another process, or set {VARIABLE} to one of '
            f'{", ".join(BACKENDS)} before.'
        )
    os.environ[VARIABLE] = choose()
