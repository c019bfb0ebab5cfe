"""Takeover: ends what an earlier launcher has left in a folder."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ....core.errors import ConfigError
from ....core.files import set_aside
from ....processes import lineage
from ....processes.process_identity import FolderIdentity, ProcessIdentity
from .status import NAME, OVER, SILENT_AFTER, Status

__all__ = ['take_over']


def take_over(
    logdir: Path, note: Callable[..., Any] = lambda event, **details: None
) -> None:
    """Ends the processes that a killed launcher has left on this machine, so that its
    ports and files are free. Refuses a run that goes on. note: adds an event.

    The copy of a folder holds the status of the original, whose processes stay.
    """
    status = _read(logdir, note)
    if status is None:
        return
    owner, record = ProcessIdentity.read(status.record), status.record
    if not owner.local:
        # Locks of files do not always reach over the network.
        if status.state not in OVER and abs(status.age) < SILENT_AFTER:
            raise ConfigError(
                f'{logdir} is in use by process {owner.pid} on {owner.host}, which '
                f'wrote {status.age:.0f} s ago. Stop it first, or choose another '
                '--logdir.'
            )
        return
    if FolderIdentity.read(record.get('folder')) != FolderIdentity.of(logdir):
        if status.state not in OVER:
            note('copied', source=record.get('folder'), pid=owner.pid)
        return
    if owner.alive and owner != ProcessIdentity.of():
        # It holds no lock any more: the file was removed, or it is about to end.
        if record['state'] not in OVER:
            raise ConfigError(
                f'{logdir} is in use by process {owner.pid}, although its lock is '
                'gone. Stop it first, or choose another --logdir.'
            )
        return
    if record['lineage']:
        _end(str(record['lineage']), logdir)


def _read(logdir: Path, note: Callable[..., Any]) -> Status | None:
    """None without a status; one that cannot be read is set aside."""
    if not Status.exists(logdir):
        return None
    try:
        return Status.read(logdir)
    except ConfigError as error:
        aside = set_aside(logdir / NAME)
        print(f'{error} It is kept as {aside.name}.', file=sys.stderr)
        note('damaged', file=str(logdir / NAME), reason=str(error), kept=aside.name)
        return None


def _end(run_tag: str, logdir: Path) -> None:
    # With the dot that ends it: a tag that was cut must not fit those of others.
    family = f'{run_tag}.'
    if not lineage.end(family):
        pids = ', '.join(map(str, lineage.members(family)))
        raise ConfigError(
            f'Processes {pids} of an earlier run in {logdir} cannot be ended. They may '
            'be waiting for a disk or a device that does not answer.'
        )
