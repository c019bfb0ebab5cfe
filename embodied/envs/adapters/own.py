"""Environments of users: finds their factories and adapts what these return."""

import difflib
import importlib
import inspect
import os
import pickle
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from ...core import unpickling
from ...core.errors import ConfigError
from .foreign_kinds import adapt_vector, is_vector

__all__ = [
    'adapt',
    'build',
    'find',
    'import_user',
    'is_reference',
    'no_module',
    'save',
    'search_here',
]

PICKLE = 'pickle:'
PACKAGES = {'ALE': 'ale_py'}  # of Gymnasium's namespaces that are named otherwise
REFERENCE = re.compile(r'[A-Za-z_][\w.]*:[A-Za-z_][\w.]*')


def is_reference(task: str) -> bool:
    """Whether a task is `module:factory` or a factory that `save` has kept."""
    return task.startswith(PICKLE) or bool(REFERENCE.fullmatch(task))


def find(task: str) -> Callable[..., Any]:
    """The factory that `module:factory` names, also in the working directory."""
    if task.startswith(PICKLE):
        return _load(Path(task.removeprefix(PICKLE)))
    module_name, _, path = task.partition(':')
    module = import_user(module_name)
    value: Any = module
    for name in path.split('.'):
        if not hasattr(value, name):
            close = difflib.get_close_matches(name, dir(value), n=3)
            hint = f' Closest names: {", ".join(close)}.' if close else ''
            raise ConfigError(
                f'{module_name!r} ({module.__file__}) has no {name!r}.{hint}'
            )
        value = getattr(value, name)
    if not callable(value):
        raise ConfigError(
            f'{task!r} is a {type(value).__name__}, not a function or class that makes '
            'an environment.'
        )
    return value


def import_user(name: str) -> ModuleType:
    """Imports a module of the user's, also from the working directory."""
    search_here()
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f'{name}.'.startswith(f'{error.name}.'):
            raise
        raise no_module(name) from error


def search_here() -> None:
    """Modules of the user's may lie in the working directory."""
    folder = os.getcwd()
    if folder not in sys.path and '' not in sys.path:
        sys.path.insert(0, folder)


def no_module(name: str) -> ConfigError:
    return ConfigError(
        f'There is no module {name!r}, neither installed nor in {os.getcwd()}. Start '
        'from the folder that it is in, or install it: pip install -e PATH.'
    )


def build(
    factory: Callable[..., Any], seed: int | None = None, log: Sequence[str] = ()
) -> Any:
    """The environment of a factory, which gets `seed` if it has such an argument.

    log: as of `adapt`.
    """
    signature = inspect.signature(factory)
    arguments = {'seed': seed} if 'seed' in signature.parameters else {}
    try:
        signature.bind(**arguments)
    except TypeError as error:
        raise ConfigError(
            f'The factory {factory!r} of environments is called with nothing, or with '
            f'seed=... if it has that argument, but: {error}. Give the others defaults.'
        ) from error
    return adapt(factory(**arguments), seed, log)


def adapt(env: Any, seed: int | None = None, log: Sequence[str] = ()) -> Any:
    """Brings environments of Gymnasium and dm_env to the Env contract, and vector
    environments of Gymnasium and EnvPool to the VectorEnv contract.

    log: numbers in Gymnasium's infos that become keys `log/...`.
    """
    if hasattr(env, 'obs_space') and hasattr(env, 'act_space'):
        _refuse_log(env, log)
        _refuse_functional(env)
        return env
    if is_vector(env):
        return adapt_vector(env, seed, log)
    if hasattr(env, 'observation_space') and hasattr(env, 'action_space'):
        from .from_gym import FromGym

        return FromGym(env, seed=seed, log=log)
    if hasattr(env, 'observation_spec') and hasattr(env, 'action_spec'):
        from .from_dm import FromDM

        _refuse_log(env, log)
        return FromDM(env)
    raise ConfigError(
        f'The factory returned a {type(env).__name__}, which is no environment: it has '
        'neither obs_space and act_space (embodied.Env) nor observation_space and '
        'action_space (Gymnasium) nor observation_spec and action_spec (dm_env).'
    )


def _refuse_functional(env: Any) -> None:
    if hasattr(env, 'transition') and not hasattr(env, 'step'):
        raise ConfigError(
            f'The factory returned the functional environment {type(env).__name__}. '
            f'Return embodied.envs.FunctionalVectorEnv(env, num, seed), which plays '
            f'`num` members of it.'
        )


def _refuse_log(env: Any, log: Sequence[str]) -> None:
    if log:
        raise ConfigError(
            f'Entries to log ({", ".join(log)}) are those of infos of Gymnasium, and '
            f'the environment is a {type(env).__name__}. Return such numbers as '
            'observations called log/... instead.'
        )


def save(factory: Callable[..., Any], path: Path) -> str:
    """Keeps a factory in a file, from which it can be made anywhere; its task name."""
    import cloudpickle

    try:
        data = cloudpickle.dumps(factory)
    except (TypeError, pickle.PicklingError) as error:
        raise ConfigError(
            f'make_env={factory!r} cannot be sent to other processes: {error}. Create '
            'files, locks, windows and connections inside of it, not before.'
        ) from error
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return f'{PICKLE}{path}'


def _load(path: Path) -> Callable[..., Any]:
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise ConfigError(
            f'The factory of the environment is gone: {path}. Give it again, as '
            'make_env=... or --task module:factory.'
        ) from error
    try:
        return unpickling.loads(data, trust=True)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f'The factory of the environment in {path} needs the module '
            f'{error.name!r}, which is neither installed nor in {os.getcwd()}. Install '
            'it, or start from the folder that it is in.'
        ) from error
