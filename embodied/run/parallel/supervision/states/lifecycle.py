"""Lifecycle of a run: its phase, the states of its roles, and when something is due.

It applies the tables of transitions.py. It knows no processes, and the time only by the
clock that it is given.
"""

import abc
import time
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from . import transitions
from .deadlines import Deadlines
from .transitions import Action, Event, Kind, Phase, RunAction, RunEvent, State

__all__ = ['Lifecycle', 'Stateful']


class Stateful(Protocol):
    """What a lifecycle knows of a role."""

    state: State
    writes: bool  # has something to write to disk before it ends


R = TypeVar('R', bound=Stateful)


class Lifecycle(abc.ABC, Generic[R]):
    """Takes a run and its roles from state to state; a subclass performs the actions.

    longest_gap: seconds between two calls of `catch_up` in a process that was not
    suspended.
    """

    def __init__(
        self, longest_gap: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.phase = Phase.ACTIVE
        self.roles: list[R] = []
        self.lead: R | None = None
        self._deadlines: Deadlines[R | RunEvent] = Deadlines(longest_gap, clock)

    @abc.abstractmethod
    def perform(self, action: Action, role: R) -> None:
        """Performs an action on a role; may raise further events."""

    @abc.abstractmethod
    def perform_on_run(self, action: RunAction) -> None:
        """Performs an action on the run; may raise further events."""

    def add(self, role: R, lead: bool = False) -> None:
        self.roles.append(role)
        if lead:
            self.lead = role

    @property
    def over(self) -> bool:
        """Whether all roles have ended for good."""
        return all(x.state in State.DONE | State.FAILED for x in self.roles)

    def advance(self, role: R, event: Event) -> None:
        """Takes a role to its next state."""
        row = transitions.find(event, self.phase, role.state, self.kind(role))
        if row is None:
            return
        if row.next is not None:
            role.state = row.next
            self._deadlines.cancel(role)  # which was one of the last state
        for action in row.actions:
            self.perform(action, role)
        meanings = transitions.LEAD_EVENTS
        if role is self.lead and row.next is not None and row.next in meanings:
            self.advance_run(meanings[row.next])

    def advance_run(self, event: RunEvent) -> None:
        """Takes the run to its next phase."""
        row = transitions.find_run(event, self.phase)
        if row is None:
            return
        self.phase = row.next or self.phase
        for action in row.actions:
            self.perform_on_run(action)

    def kind(self, role: R) -> Kind:
        if self.lead is None:
            return Kind.INDEPENDENT
        if role is self.lead:
            return Kind.LEAD
        return Kind.WRITER if role.writes else Kind.OTHER

    # Time

    def set_deadline(self, key: R | RunEvent, seconds: float) -> None:
        """When a role, in its present state, or an event of the run is due."""
        self._deadlines.set(key, seconds)

    def remaining(self) -> float | None:
        """Seconds until something is due; None if nothing will be."""
        return self._deadlines.remaining()

    def catch_up(self) -> float:
        """Seconds for which this process was suspended, by which the grace is
        extended; 0 if it was not."""
        gap = self._deadlines.gap()
        for key in (RunEvent.GRACE_SHORT, RunEvent.GRACE_OVER):
            self._deadlines.postpone(key, gap)
        return gap

    def advance_due(self) -> None:
        """Raises the events that are due."""
        while (due := self._deadlines.pop_due()) is not None:
            if isinstance(due, RunEvent):
                self.advance_run(due)
            else:
                self.advance(due, Event.DUE)
