"""Vector environments by option: tasks whose members are as many as a run needs."""

from collections.abc import Mapping
from typing import Any

import elements

from embodied import envs
from embodied.core import base
from embodied.core.errors import ConfigError
from embodied.processes import cpu

__all__ = [
    'NUM',
    'check_script',
    'count',
    'members_per_worker',
    'on_device',
    'takes_num',
]

NUM = 'num'  # setting of suites that make vector environments of any size
CHOICE = 'vector'  # setting of those among them that make single ones as well


def members_per_worker(config: elements.Config) -> int:
    """Members of each vector environment of a run; 0: the task has single ones, or a
    factory of the user's decides.

    Functions of JAX are fastest with all members in one program; what steps one member
    after the other is spread over the cores.
    """
    suite, _ = envs.registry.parse(config.task)
    settings, run = config.env.get(suite, {}), config.run
    if not takes_num(suite, settings):
        return 0
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
    inner = env
    while not hasattr(inner, 'step_members') and hasattr(inner, 'env'):
        inner = inner.env
    if not hasattr(inner, 'step_members'):
        raise ConfigError(
            f'run.device_steps={config.run.device_steps} needs an environment that is '
            f'written in JAX (gymnax, craftax, navix, brax, playground), and '
            f'{config.task} is none. Leave it at 1.'
        )
    for outer, own in (
        (env.obs_space, inner.obs_space),
        (env.act_space, inner.act_space),
    ):
        changed = [k for k in outer if k not in own or not _same(outer[k], own[k])]
        if changed:
            raise ConfigError(
                f'run.device_steps={config.run.device_steps} plays {config.task} '
                f'without the wrappers of this process, which change {changed}. Leave '
                f'it at 1, or leave out the options that do so (repeat, bound).'
            )
    return inner


def _same(one: elements.Space, other: elements.Space) -> bool:
    return (one.dtype, one.shape) == (other.dtype, other.shape)
