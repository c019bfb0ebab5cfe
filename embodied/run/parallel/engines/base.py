"""Engines: on which machines the roles of a run are started."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Protocol

from ..settings import ParallelSettings
from ..supervision.process import ChildProcess, RoleSpec
from ..supervision.role import RoleProcess
from ..supervision.role_logs import Incomplete
from . import ports

__all__ = ['Engine', 'Here']


class Engine(Protocol):
    """Where a launcher starts the roles of a run, and how."""

    def check(self, settings: ParallelSettings) -> None:
        """Refuses settings that cannot work with this engine."""

    def open(self, settings: ParallelSettings) -> AbstractContextManager:
        """Context in which roles can be started."""

    def join(
        self, settings: ParallelSettings, end: Callable[[str], None]
    ) -> AbstractContextManager:
        """Context in which environments can be started for a run of another launcher;
        `end` is called, with a reason, when that run ends."""

    def adapt(self, settings: ParallelSettings, envs: int) -> dict[str, Any]:
        """Options that replace those of the roles, for this number of environments;
        called for each attempt to start the roles."""

    def spawn(
        self,
        name: str,
        spec: RoleSpec,
        log: Path,
        run_tag: str,
        notify: Any,
        shown: bool = False,
        incomplete: Incomplete | None = None,
    ) -> RoleProcess:
        """Starts a process, as `ChildProcess` does."""


class Here:
    """Starts processes on this machine."""

    spawn = ChildProcess

    def check(self, settings: ParallelSettings) -> None:
        ports.check(settings)

    def open(self, settings: ParallelSettings) -> AbstractContextManager:
        return nullcontext()

    def join(
        self, settings: ParallelSettings, end: Callable[[str], None]
    ) -> AbstractContextManager:
        ports.require_fixed('actor_addr', settings)
        return nullcontext()

    def adapt(self, settings: ParallelSettings, envs: int) -> dict[str, Any]:
        return ports.resolve(settings)
