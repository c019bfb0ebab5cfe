"""Manifest: names the saves of all roles that belong together.

    ckpt/
      manifest.json   {"saves": {"agent": VERSION, "replay": ..., "logger": ...},
                       "counters": {"steps": ..., "trained": ..., "updates": ..., ...},
                       "ended": false, "state": "", "reason": "", "checksum": ...}
      agent/          checkpoints of each role, by version
      replay/
      logger/

It is replaced after all of them are whole. So a run that starts again finds saves that
were made together, whenever it was killed.
"""

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ....core.checkpoint import settle
from ....core.errors import CheckpointError
from ....core.files import read_sealed, seal, set_aside, why_unreadable, write_whole

__all__ = ['Manifest']

NAME = 'manifest.json'
UNSEALED = frozenset({'saves', 'counters', 'ended'})  # of version 0.1.0
AGENT = 'agent'
ROLES = (AGENT, 'replay', 'logger')


def _no_event(event: str, **details: Any) -> None:
    pass


class Manifest(NamedTuple):
    """Versions by role, and counters as they were in these saves."""

    saves: dict[str, str]
    counters: dict[str, int]
    ended: bool = False  # cleanly: each role has saved once more since
    state: str = ''  # of a run that has ended so: finished or stopped
    reason: str = ''

    @classmethod
    def read(cls, folder: Path) -> 'Manifest':
        """The manifest of a run's checkpoints; an empty one before the first save."""
        path = folder / NAME
        if not path.exists():
            return cls({}, {})
        try:
            data = read_sealed(path, UNSEALED)
            saves = {role: str(version) for role, version in data['saves'].items()}
            counters = {name: int(x) for name, x in data['counters'].items()}
            outcome = [str(data.get(name, '')) for name in ('state', 'reason')]
            return cls(saves, counters, bool(data['ended']), *outcome)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise CheckpointError(
                f'{path} cannot be read: {why_unreadable(error)}. Remove it to '
                'continue the run from the newest save of each role.'
            ) from error

    @classmethod
    def recover(cls, folder: Path, note: Callable[..., Any] = _no_event) -> 'Manifest':
        """As `read`; one that cannot be read is set aside, and each role goes on from
        its newest save: counters are those of the replay and the agent anyway."""
        try:
            return cls.read(folder)
        except CheckpointError as error:
            aside = set_aside(folder / NAME)
            print(
                f'{folder / NAME} cannot be read and is kept as {aside.name}. Each '
                'role goes on from its newest save.',
                file=sys.stderr,
            )
            details = {'reason': str(error.__cause__), 'kept': aside.name}
            note('damaged', file=str(folder / NAME), **details)
            return cls({}, {})

    def write(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        record = seal(self._asdict())
        write_whole(folder / NAME, json.dumps(record, indent=2) + '\n')

    def adopt(
        self,
        folder: Path,
        note: Callable[..., Any] = _no_event,
        roles: Sequence[str] = ROLES,
    ) -> None:
        """Lets every role load the save that is named here, when all start together,
        or its newest whole one if that is damaged. note: adds an event.

        A role that starts again alone loads its newest one, since the others went on.
        """
        for role in roles:
            named = self.saves.get(role)
            prefer = None if self.ended else named
            if settle(folder / role, prefer, note) or named is None:
                continue
            if role == AGENT:
                raise self.lacks_agent(folder)
            print(f'{folder / role} holds no save: it starts without.', file=sys.stderr)
            note('damaged', file=str(folder / role), reason=f'{named} is missing')

    def lacks_agent(self, folder: Path) -> CheckpointError:
        """What to raise if there is no save of the agent though one is named."""
        return CheckpointError(
            f'{folder / NAME} names the save {self.saves[AGENT]} of the agent, but '
            f'{folder / AGENT} holds no save. Restore it from a copy, or remove '
            f'{folder} to train a new agent on the stored experience.'
        )
