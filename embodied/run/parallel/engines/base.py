"""Engines: on which machines the roles of a run are started."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Protocol

from ..settings import ParallelSettings
from ..supervision.process import ChildProcess, RoleSpec
from ..supervision.role import RoleProcess
from . import ports as addresses

__all__ = ['Engine', 'Here']


class Engine(Protocol):
    """What a launcher needs to know of the place where it starts its roles."""

    def check(self, settings: ParallelSettings) -> None:
        """Refuses settings that cannot work there."""

    def open(self, settings: ParallelSettings) -> AbstractContextManager:
        """Context in which roles can be started."""

    def join(
        self, settings: ParallelSettings, end: Callable[[str], None]
    ) -> AbstractContextManager:
        """Context in which environments can be started for a run that goes on; `end` is
        called, with the reason, if it does not."""

    def adapt(self, settings: ParallelSettings, envs: int) -> dict[str, Any]:
        """Options that the roles get in place of the given ones, for so many
        environments; anew for each attempt to start them."""

    def spawn(
        self,
        name: str,
        order: RoleSpec,
        log: Path,
        mark: str,
        notify: Any,
        shown: bool = False,
    ) -> RoleProcess:
        """Starts a process, as `ChildProcess` does."""


class Here:
    """Processes of this machine."""

    spawn = ChildProcess

    def check(self, settings: ParallelSettings) -> None:
        addresses.check(settings)

    def open(self, settings: ParallelSettings) -> AbstractContextManager:
        return nullcontext()

    def join(
        self, settings: ParallelSettings, end: Callable[[str], None]
    ) -> AbstractContextManager:
        addresses.require_fixed('actor_addr', settings)
        return nullcontext()

    def adapt(self, settings: ParallelSettings, envs: int) -> dict[str, Any]:
        return addresses.resolve(settings)
