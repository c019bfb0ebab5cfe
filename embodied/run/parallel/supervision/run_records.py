"""Records of a supervisor: its events and its status in the folder of the run."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from ....core.errors import DreamerError
from ....logging import EVENTS, add_event
from ...shared.outcome import FAILED
from .role_logs import Incomplete
from .status import StatusFile

__all__ = ['NoRecords', 'Records', 'RunRecords']


class Records(Protocol):
    incomplete: Incomplete

    def event(self, event: str, **details: Any) -> None:
        """Appends to the events."""

    def status(self, **fields: Any) -> None:
        """Replaces the status."""


class NoRecords:
    """For supervisors of a part of a run, which record nothing."""

    def __init__(self) -> None:
        self.incomplete = Incomplete()

    def event(self, event: str, **details: Any) -> None:
        pass

    def status(self, **fields: Any) -> None:
        pass


class RunRecords:
    """Events and status as files. A full disk does not end the supervision."""

    def __init__(self, logdir: Path, epoch: int):
        self.incomplete = Incomplete()  # the logs of the roles as well
        self._logdir = logdir
        self._status = StatusFile(logdir, epoch)

    def event(self, event: str, **details: Any) -> None:
        with self.incomplete.outlasting(self._logdir / EVENTS):
            add_event(self._logdir, event, **details)

    def status(self, **fields: Any) -> None:
        with self.incomplete.outlasting(self._status.path):
            self._status.write(**fields)

    @contextmanager
    def failing(self) -> Iterator[None]:
        """Writes errors that end the run before roles are started into the status."""
        try:
            yield
        except (DreamerError, OSError) as error:
            self.status(state=FAILED, roles={}, error=str(error))
            raise
