"""Flush: lets the roles of a run that fails write what they have, then ends them."""

import queue
import time
from collections.abc import Sequence

from ..timeouts import LEAD_SAVES, WRITERS_SAVE
from .process import ENDED, RoleEvent
from .role import Role

__all__ = ['end_roles', 'flush', 'reserve']


def reserve(grace: float) -> float:
    """Seconds of the grace in which the writers write, once the lead has ended."""
    return min(WRITERS_SAVE, grace / 2)


def flush(
    roles: Sequence[Role], lead: Role | None, events: queue.SimpleQueue[str | RoleEvent]
) -> None:
    """After a failure, lets the lead save, then the writers write; ends the others."""
    if lead and lead.alive:
        lead.process.ask([role.name for role in roles if not role.alive])
        _await_end([lead], LEAD_SAVES, roles, events)
    writers = [role for role in roles if role.alive and role.writes]
    for role in roles:
        if role.alive and not role.writes:
            role.process.kill()
    for role in writers:
        role.process.ask()
    _await_end(writers, WRITERS_SAVE, roles, events)


def end_roles(roles: Sequence[Role]) -> None:
    """Kills the roles that are alive and waits for their end."""
    alive = [role for role in roles if role.alive]
    for role in alive:
        role.process.kill()
    for role in alive:
        role.finish()


def _await_end(
    awaited: Sequence[Role],
    seconds: float,
    roles: Sequence[Role],
    events: queue.SimpleQueue[str | RoleEvent],
) -> None:
    """Blocks until the awaited roles have ended, but not for longer than that."""
    deadline = time.monotonic() + seconds
    while any(role.alive for role in awaited):
        try:
            event = events.get(timeout=max(0, deadline - time.monotonic()))
        except queue.Empty:
            return
        for role in roles:
            if role.alive and event == RoleEvent(role.process, ENDED):
                role.finish()  # Its error follows from the first one.
