"""Vector environments by option: tasks whose members are as many as a run needs."""

from collections.abc import Mapping
from typing import Any

import elements

from embodied import envs
from embodied.core import base
from embodied.core.errors import ConfigError
from embodied.envs.vector.wrappers import HostArrays
from embodied.envs.wrappers import (
    CheckSpaces,
    ClipAction,
    NormalizeAction,
    ResizeImage,
    UnifyDtypes,
    Wrapper,
)
from embodied.processes import cpu

__all__ = [
    'NUM',
    'check_script',
    'count',
    'members_per_worker',
    'on_device',
    'takes_num',
]

# Wrappers that change nothing where the spaces stay the same.
HARMLESS = (
    CheckSpaces,
    ClipAction,
    HostArrays,
    NormalizeAction,
    ResizeImage,
    UnifyDtypes,
)
NUM = 'num'  # setting of suites that make vector environments of any size
CHOICE = 'vector'  # setting of those among them that make single ones as well


def members_per_worker(config: elements.Config) -> int:
    """Members of each vector environment of a run; 0: the task has single ones, or a
    factory of the user's decides.

    Functions of JAX are fastest with all members in one program; what steps one member
    after the other is spread over the cores.
    """
    suite, _ = envs.registry.parse(config.task)
    settings = config.env.get(suite, {})
    if not takes_num(suite, settings):
        return 0
    run = config.run
    if run.envs_per_worker:
        return int(run.envs_per_worker)
    total = max(1, run.envs - run.first_env)
    if CHOICE not in settings:
        return int(total)
    most = -(-total // cpu.count_cores())
    return next(size for size in range(most, 0, -1) if total % size == 0)


def takes_num(suite: str, settings: Mapping[str, Any]) -> bool:
    """Whether these settings of a suite make vector environments of any size."""
    has_num = NUM in envs.registry.settings_of(suite)
    return has_num and bool(settings.get(CHOICE, True))


def count(config: elements.Config, index: int, mode: base.Mode) -> int:
    """Members from environment number `index` on; 0: as above."""
    size = members_per_worker(config)
    if not size:
        return 0
    is_eval = mode == 'eval' and config.script != 'eval_only'
    total = config.run.eval_envs if is_eval else config.run.envs
    return min(size, max(1, total - index))


def check_script(config: elements.Config) -> None:
    """Refuses steps on the device where none are made."""
    if 'parallel' not in config.script:
        raise ConfigError(
            f'run.device_steps={config.run.device_steps} belongs to the distributed '
            f'system, and the script is {config.script}. Use `dreamer parallel`, or '
            f'leave it at 1.'
        )
    if config.random_agent:
        raise ConfigError(
            'The random agent plays nothing on a device: leave run.device_steps at 1.'
        )


def on_device(config: elements.Config, env: Any) -> Any:
    """The members inside of the wrappers, whose steps a program can contain."""
    inner, changing = env, []
    while isinstance(inner, Wrapper):
        changing += [] if isinstance(inner, HARMLESS) else [type(inner).__name__]
        inner = inner.env
    steps = f'run.device_steps={config.run.device_steps}'
    if not hasattr(inner, 'step_members'):
        raise ConfigError(
            f'{steps} needs an environment that is written in JAX (gymnax, craftax, '
            f'navix, brax, playground), and {config.task} is none. Leave it at 1.'
        )
    if inner.num != config.run.envs:
        raise ConfigError(
            f'{steps} plays all environments of a run in one program, but '
            f'run.envs={config.run.envs} and {config.task} has {inner.num} members. '
            f'Set run.envs to {inner.num}.'
        )
    if changing or not _same_spaces(env, inner):
        raise ConfigError(
            f'{steps} plays {config.task} without what wraps it in a worker '
            f'({", ".join(changing) or "conversions of its spaces"}). Leave it at 1, '
            f'or leave out options that change the environment (repeat, length, bound, '
            f'convert, size).'
        )
    return inner


def _same_spaces(one: Any, other: Any) -> bool:
    kinds = lambda spaces: {k: (x.dtype, x.shape) for k, x in spaces.items()}
    return all(
        kinds(getattr(one, name)) == kinds(getattr(other, name))
        for name in ('obs_space', 'act_space')
    )
