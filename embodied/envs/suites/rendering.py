"""Rendering for MuJoCo: which library draws, decided before MuJoCo is loaded."""

import contextlib
import importlib
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from ...core.errors import ConfigError

__all__ = ['choose', 'load', 'use_renderer']

VARIABLE = 'MUJOCO_GL'
NONE = 'disabled'
BACKENDS = ('egl', 'osmesa')  # on the GPU or the CPU; on the CPU
PROBE = 'import mujoco; mujoco.GLContext(64, 64).make_current()'
PROBE_TIMEOUT = 60.0  # seconds

HELP = (
    'Images of MuJoCo need a library that draws without a screen, and neither EGL nor '
    'OSMesa works here. On Debian and Ubuntu: apt-get install libegl1 or apt-get '
    'install libosmesa6. Tasks of DMC without images need neither: '
    '--env.dmc.image False --env.dmc.proprio True.'
)


def load(module: str, draws: bool) -> Any:
    """Imports a module that uses MuJoCo, with a renderer if `draws`, else without any.

    MuJoCo reads its variable when it is loaded, so one process has one answer.
    """
    if draws:
        use_renderer()
        return importlib.import_module(module)
    with _without_renderer():
        return importlib.import_module(module)


def use_renderer() -> None:
    """Decides what draws in this process and its children, before MuJoCo is loaded."""
    if VARIABLE in os.environ:
        return
    if 'mujoco' in sys.modules:
        raise ConfigError(
            'MuJoCo was loaded in this process for a task without images and cannot '
            f'draw any more. Use another process, or set {VARIABLE} to one of '
            f'{", ".join(BACKENDS)} before.'
        )
    os.environ[VARIABLE] = choose()


def choose(backends: Sequence[str] = BACKENDS) -> str:
    """The first library that can draw here, found out in a process of its own."""
    for backend in backends:
        if _draws(backend):
            return backend
    raise ConfigError(HELP)


def _draws(backend: str) -> bool:
    try:
        done = subprocess.run(
            [sys.executable, '-c', PROBE],
            env={**os.environ, VARIABLE: backend},
            capture_output=True,
            timeout=PROBE_TIMEOUT,
        )
    except subprocess.TimeoutExpired:  # A driver that hangs does not draw.
        return False
    return done.returncode == 0


@contextlib.contextmanager
def _without_renderer() -> Iterator[None]:
    if VARIABLE in os.environ or 'mujoco' in sys.modules:
        yield
        return
    os.environ[VARIABLE] = NONE
    try:
        yield
    finally:  # Child processes decide for themselves.
        del os.environ[VARIABLE]
