"""Members: fits the plan of workers to the members of a vector environment.

How many there are is known when a worker has made the first one. With
`run.envs_per_worker 0` the launcher starts all roles again, with that number; otherwise
the user has to give another one.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

from ....core.errors import ConfigError, MembersError
from ..settings import ParallelSettings, WorkerPlan

__all__ = ['adopt', 'check', 'retry']


def check(plan: WorkerPlan, members: int, settings: ParallelSettings) -> None:
    """Raises MembersError unless the environment of a worker has the planned members.

    members: 0 is a single environment. One for evaluation may have more than planned.
    """
    planned = len(plan.envids)
    if not members:
        if settings.vector_envs and planned > 1:
            raise ConfigError(
                f'{plan.name} needs a vector environment of {planned} members, as the '
                f'others of the run, and its factory made a single environment.'
            )
        return
    fits = planned <= members if plan.is_eval else planned == members
    if fits and (settings.vector_envs or settings.envs_per_worker):
        return
    raise MembersError(
        f'The vector environment of {plan.name} has {members} members, and {planned} '
        f'are planned (run.envs={settings.envs}, run.envs_per_worker='
        f'{settings.envs_per_worker}). Set run.envs_per_worker to {members}, or to 0 '
        f'to adopt the number, and run.envs to a multiple of {members}.',
        members,
    )


def adopt(plan: WorkerPlan, members: int, settings: ParallelSettings) -> WorkerPlan:
    """The plan of a worker for all members from its first environment on."""
    first = plan.envids[0]
    last = settings.envs if not plan.is_eval else first + members
    if first + members > last:
        raise ConfigError(
            f'The vector environment has {members} members, and from number {first} on '
            f'there are {last - first} environments (run.envs={settings.envs}). Set '
            f'run.envs to a multiple of {members}.'
        )
    return plan._replace(envids=tuple(range(first, first + members)))


def retry(
    settings: ParallelSettings,
    run: Callable[[ParallelSettings, dict[str, Any]], Any],
    note: Callable[..., Any] = lambda event, **details: None,
) -> Any:
    """Calls `run` with the settings and changes of them; again if a vector environment
    turns up whose members were not planned, which is the event `members`."""
    try:
        return run(settings, {})
    except MembersError as error:
        if settings.envs_per_worker:
            raise
        changes = _plan(error.members, settings)
    note('members', **changes)
    print(
        f'dreamer: the environment is a vector environment of '
        f'{changes["envs_per_worker"]} members. The roles start again, with so many '
        f'environments per worker; run.envs_per_worker spares that.'
    )
    return run(dataclasses.replace(settings, **changes), changes)


def _plan(members: int, settings: ParallelSettings) -> dict[str, Any]:
    envs = settings.envs - settings.first_env
    if envs % members:
        nearest = settings.first_env + max(1, round(envs / members)) * members
        raise ConfigError(
            f'run.envs={settings.envs} is not a multiple of the {members} members of '
            f'the vector environment, which step together. Use run.envs {nearest}.'
            if not settings.first_env
            else f'run.envs={settings.envs} and run.first_env={settings.first_env} '
            f'leave {envs} environments, no multiple of the {members} members of the '
            f'vector environment. Use run.envs {nearest}.'
        )
    return {'envs_per_worker': members, 'vector_envs': True}
