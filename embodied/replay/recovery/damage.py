"""Damage: what is wrong with a file of a replay folder, for logs, events and tools."""

import dataclasses
import logging
from pathlib import Path
from typing import Any

__all__ = ['Damage']

log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Damage:
    """path: the file. steps: how many are affected; None if that cannot be known.
    chunk: the slot within a segment, where only one is affected.
    """

    path: Path
    reason: str
    steps: int | None = None
    chunk: int | None = None

    def __str__(self) -> str:
        chunk = '' if self.chunk is None else f', chunk {self.chunk}'
        steps = 'unknown' if self.steps is None else self.steps
        return f'{self.path}{chunk}: {self.reason} (steps affected: {steps})'

    @property
    def loses_steps(self) -> bool:
        return self.steps is None or self.steps > 0

    def details(self) -> dict[str, Any]:
        """For an event."""
        name = f'{self.path.parent.name}/{self.path.name}'
        details = {'file': name, 'reason': self.reason, 'steps': self.steps}
        return details if self.chunk is None else details | {'chunk': self.chunk}

    def report(self) -> None:
        log.warning('Replay file %s.', self)
