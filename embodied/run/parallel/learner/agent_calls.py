"""Agent calls: which calls of the agent compile, for the supervisor and events."""

import contextlib
from collections.abc import Iterator
from typing import Any

from ..supervision.health import COMPILING, Health

__all__ = ['AgentCalls']


class AgentCalls:
    """Marks the calls of one agent.

    alone: no other replicas, for which a call would have to wait.
    """

    def __init__(self, agent: Any, health: Health, alone: bool):
        self._agent = agent
        self._health = health
        self._alone = alone
        self._called: set[str] = set()  # programs
        self._told = 0  # compilations that were returned

    def busy(self, program: str) -> contextlib.AbstractContextManager[None]:
        """Context of a call, which has to come to an end.

        The first call of a program compiles it. A later one with other replicas may
        wait for them, and waiting is not marked.
        """
        first = program not in self._called
        self._called.add(program)
        if not (first or self._alone):
            return contextlib.nullcontext()
        return self._health.busy(COMPILING if first else '')

    def newly_compiled(self) -> Iterator[dict[str, Any]]:
        """Programs compiled since the last call, if the agent lists them."""
        new = list(getattr(self._agent, 'compiled', ()))[self._told :]
        self._told += len(new)
        for program, seconds, cached in new:
            yield {'program': program, 'seconds': round(seconds, 1), 'cached': cached}
