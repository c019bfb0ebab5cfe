"""Manifest: names the saves of all roles that belong together.

    ckpt/
      manifest.json   {"saves": {"agent": VERSION, "replay": ..., "logger": ...},
                       "counters": {"steps": ..., "trained": ..., "updates": ..., ...},
                       "ended": false, "state": "", "reason": ""}
      agent/          checkpoints of each role, by version
      replay/
      logger/

It is replaced after all of them are whole, so a run that starts again finds saves that
were made together, whatever moment it was killed at.
"""

import json
from pathlib import Path
from typing import NamedTuple

from ...core.checkpoint import point_to, write_whole
from ...core.errors import CheckpointError

__all__ = ['Manifest']

NAME = 'manifest.json'


class Manifest(NamedTuple):
    """Versions by role, and counters as they were in these saves."""

    saves: dict[str, str]
    counters: dict[str, int]
    ended: bool = False  # cleanly: each role has saved once more since
    state: str = ''  # of a run that has ended so: finished or stopped
    reason: str = ''

    @classmethod
    def read(cls, folder: Path) -> 'Manifest':
        """That of a run's checkpoints; an empty one before the first save."""
        path = folder / NAME
        if not path.exists():
            return cls({}, {})
        try:
            data = json.loads(path.read_text())
            outcome = data.get('state', ''), data.get('reason', '')
            return cls(
                dict(data['saves']), dict(data['counters']), data['ended'], *outcome
            )
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointError(
                f'{path} cannot be read: {error!r}. Remove it to continue the run from '
                'the newest save of each role.'
            ) from error

    def write(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / NAME, json.dumps(self._asdict(), indent=2) + '\n')

    def adopt(self, folder: Path) -> None:
        """Lets every role load the save that is named here, when all start together.

        A role that starts again alone loads its newest one, since the others went on.
        """
        if self.ended:
            return
        for role, version in self.saves.items():
            point_to(folder / role, version)
