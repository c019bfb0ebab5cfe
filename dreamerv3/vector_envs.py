"""Vector environments by option: tasks whose members are as many as a run needs."""

import elements

from embodied import envs
from embodied.core import base
from embodied.processes import cpu

__all__ = ['count', 'members_per_worker']

NUM = 'num'  # setting of suites that make vector environments of any size
CHOICE = 'vector'  # setting of those among them that make single ones as well


def members_per_worker(config: elements.Config) -> int:
    """Members of each vector environment of a run; 0: the task has single ones, or a
    factory of the user's decides.

    Functions of JAX are fastest with all members in one program; what steps one member
    after the other is spread over the cores.
    """
    suite, _ = envs.registry.parse(config.task)
    if NUM not in envs.registry.settings_of(suite):
        return 0
    settings, run = config.env.get(suite, {}), config.run
    if not settings.get(CHOICE, True):
        return 0
    if run.envs_per_worker:
        return int(run.envs_per_worker)
    total = max(1, run.envs - run.first_env)
    if CHOICE not in settings:
        return int(total)
    most = -(-total // cpu.count_cores())
    return next(size for size in range(most, 0, -1) if total % size == 0)


def count(config: elements.Config, index: int, mode: base.Mode) -> int:
    """Members from environment number `index` on; 0: as above."""
    size = members_per_worker(config)
    is_eval = mode == 'eval' and config.script != 'eval_only'
    total = config.run.eval_envs if is_eval else config.run.envs
    return min(size, max(1, total - index))
