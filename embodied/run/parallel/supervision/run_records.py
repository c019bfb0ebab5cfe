"""Records of a supervisor: its events and its status in the folder of the run."""

import logging
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Protocol

from ....core.errors import DreamerError
from ....logging import EventFile
from ...shared.outcome import FAILED
from .status import StatusFile

__all__ = ['NoRecords', 'Records', 'RunRecords']

log = logging.getLogger(__name__)


class Records(Protocol):
    def event(self, event: str, **details: Any) -> None:
        """Appends to the events."""

    def status(self, **fields: Any) -> None:
        """Replaces the status."""


class NoRecords:
    """For supervisors of a part of a run, which record nothing."""

    def event(self, event: str, **details: Any) -> None:
        pass

    def status(self, **fields: Any) -> None:
        pass


class RunRecords:
    """Events and status as files. A full disk does not end the supervision: what cannot
    be written is reported once."""

    def __init__(self, logdir: Path, epoch: int):
        self._logdir = logdir
        self._status = StatusFile(logdir, epoch)
        self._broken: set[str] = set()  # what could not be written the last time

    def event(self, event: str, **details: Any) -> None:
        with self._saying('events'), closing(EventFile(self._logdir)) as file:
            file.add(event, **details)

    def status(self, **fields: Any) -> None:
        with self._saying('status'):
            self._status.write(**fields)

    @contextmanager
    def failing(self) -> Iterator[None]:
        """Writes errors that end the run before roles are started into the status."""
        try:
            yield
        except (DreamerError, OSError) as error:
            self.status(state=FAILED, roles={}, error=str(error))
            raise

    @contextmanager
    def _saying(self, what: str) -> Iterator[None]:
        try:
            yield
            self._broken.discard(what)
        except OSError as error:
            if what not in self._broken:
                log.warning('Cannot write the %s in %s: %s', what, self._logdir, error)
            self._broken.add(what)
