"""Takeover: makes sure that an earlier session in a folder is over."""

from pathlib import Path

from ...core import lineage
from ...core.errors import ConfigError
from ...core.identity import Identity
from .status import OVER, SILENT_AFTER, Status

__all__ = ['take_over']


def take_over(logdir: Path) -> None:
    """Ends what a killed launcher has left on this machine; its ports and files are
    free then. Refuses a run that is still going on another one."""
    if not Status.exists(logdir):
        return
    state, age, record = Status.read(logdir)
    owner = Identity.read(record)
    if not owner.local:
        # Locks of files do not always reach over the network.
        if state not in OVER and abs(age) < SILENT_AFTER:
            raise ConfigError(
                f'{logdir} is in use by process {owner.pid} on {owner.host}, which '
                f'wrote {age:.0f} s ago. Stop it first, or choose another --logdir.'
            )
        return
    if record['lineage'] and not lineage.end(record['lineage']):
        pids = ', '.join(map(str, lineage.members(record['lineage'])))
        raise ConfigError(
            f'Processes {pids} of an earlier run in {logdir} cannot be ended. They may '
            'be waiting for a disk or a device that does not answer.'
        )
