"""Crew: roles that were started together, from their start to the end of the last."""

import queue
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Protocol

from ...core.errors import RoleError
from ...core.signals import StopSignals
from .children import Child
from .settings import ParallelSettings

__all__ = ['Crew', 'Role']

FLUSH_SECONDS = 5.0  # for roles to write what they have after another one has failed


class Role(Protocol):
    """A child process, or a thread that is treated like one."""

    name: str

    def ask(self) -> None:
        """Asks it to end cleanly."""

    def kill(self) -> None:
        """Ends it at once."""

    def collect(self) -> BaseException | None:
        """Waits for its end; the error that caused it, if any."""


class Crew:
    """Starts roles, waits for their end, and leaves nothing behind.

    The first stop signal asks `lead`, who tells the others, to end; without a lead it
    asks everybody. From then on, or when the lead has ended, all have `run.grace`
    seconds. The first error of any role ends all of them.
    """

    def __init__(self, settings: ParallelSettings):
        self._grace = settings.grace
        self._logs = settings.logdir / 'logs'
        self._events: queue.SimpleQueue[str | Role] = queue.SimpleQueue()
        self._signals = StopSignals(notify=self._events.put)
        self._roles: list[Role] = []  # that have not ended
        self._writers: list[Role] = []  # roles with something to write in the end
        self._lead: Role | None = None
        self._deadline: float | None = None  # for all of them to have ended

    def __enter__(self) -> 'Crew':
        self._signals.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if isinstance(error, Exception):
                self._flush()
        finally:
            for role in self._roles:
                role.kill()
            for role in self._roles:
                role.collect()
            self._signals.__exit__(kind, error, trace)

    def start(
        self,
        name: str,
        role: Callable[..., None],
        *args: Any,
        lead: bool = False,
        writes: bool = False,
        shown: bool = False,
    ) -> None:
        """Starts `role(*args)` in a process of its own, which logs to `logs/name.log`.

        writes: it has something to write to disk before it ends.
        shown: what it prints is for the user, rather than for the log.
        """
        log = self._logs / f'{name}.log'
        child = Child(name, role, args, log, self._events.put, shown)
        self.add(child, lead)
        if writes:
            self._writers.append(child)

    def add(self, role: Role, lead: bool = False) -> None:
        """Adds a role that puts itself into `on_exit` when it has ended."""
        self._roles.append(role)
        if lead:
            self._lead = role

    def on_exit(self, role: Role) -> None:
        self._events.put(role)

    def wait(self) -> None:
        """Blocks until all roles have ended; raises the first error of any."""
        while self._roles:
            event = self._next_event()
            if isinstance(event, str):
                self._stop()
            else:
                self._part_with(event)

    def _next_event(self) -> 'str | Role':
        left = None if self._deadline is None else self._deadline - time.monotonic()
        try:
            return self._events.get(timeout=None if left is None else max(0.0, left))
        except queue.Empty:
            names = ', '.join(role.name for role in self._roles)
            raise RoleError(
                f'{names} did not end within run.grace={self._grace} s and had to be '
                f'killed. What they were doing may be in {self._logs}.'
            ) from None

    def _stop(self) -> None:
        """Somebody interrupts."""
        self._begin_grace()
        for role in [self._lead] if self._lead in self._roles else self._roles:
            role.ask()

    def _part_with(self, role: Role) -> None:
        self._roles.remove(role)
        error = role.collect()
        if error:
            raise error
        if role is self._lead:
            # It has told the others, unless it was stopped before it could.
            self._begin_grace()
            for other in self._roles:
                other.ask()
        elif role in self._writers:
            self._begin_grace()  # The lead cannot do without it.

    def _begin_grace(self) -> None:
        if self._deadline is None:
            self._deadline = time.monotonic() + self._grace

    def _flush(self) -> None:
        """After an error, lets the others write what they have."""
        writers = [role for role in self._writers if role in self._roles]
        for role in self._roles:
            if role not in writers:
                role.kill()
        for role in writers:
            role.ask()
        deadline = time.monotonic() + FLUSH_SECONDS
        while any(role in self._roles for role in writers):
            try:
                event = self._events.get(timeout=max(0, deadline - time.monotonic()))
            except queue.Empty:
                return
            if not isinstance(event, str):
                self._roles.remove(event)
                event.collect()  # Errors that follow from the first one.
