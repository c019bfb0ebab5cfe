"""Records of a crew: its events and its status in the folder of the run."""

import contextlib
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from ...logging import EventFile
from .status import StatusFile

__all__ = ['NoRecords', 'Records', 'RunRecords']

log = logging.getLogger(__name__)


class Records(Protocol):
    def event(self, event: str, **details: Any) -> None:
        """Appends to the events."""

    def status(
        self, state: str, roles: Mapping[str, Mapping[str, Any]], error: str = ''
    ) -> None:
        """Replaces the status."""


class NoRecords:
    """For crews that are only a part of a run."""

    def event(self, event: str, **details: Any) -> None:
        pass

    def status(
        self, state: str, roles: Mapping[str, Mapping[str, Any]], error: str = ''
    ) -> None:
        pass


class RunRecords:
    """Files of a run. A full disk must not keep us from looking after the roles: what
    cannot be written is said once."""

    def __init__(self, logdir: Path, epoch: int):
        logdir.mkdir(parents=True, exist_ok=True)
        self._logdir = logdir
        self._status = StatusFile(logdir, epoch)
        self._broken = False

    def event(self, event: str, **details: Any) -> None:
        with self._saying(), contextlib.closing(EventFile(self._logdir)) as file:
            file.add(event, **details)

    def status(
        self, state: str, roles: Mapping[str, Mapping[str, Any]], error: str = ''
    ) -> None:
        with self._saying():
            self._status.write(state, roles, error)

    @contextlib.contextmanager
    def _saying(self) -> Iterator[None]:
        try:
            yield
            self._broken = False
        except OSError as error:
            if not self._broken:
                log.warning('Cannot write to %s: %s', self._logdir, error)
            self._broken = True
