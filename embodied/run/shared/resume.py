"""Resume: says which options of a run may change when it is continued."""

import re
from typing import Any, NamedTuple

import elements

from ...core.errors import ConfigError
from ...core.renamed import renew

__all__ = ['Change', 'check_resume']

# Full names of options that change how long, how fast, where or how visibly a run
# goes on, but not what its saved parameters, optimizer and replay mean. Loading the
# checkpoint checks whether its parts are enough for another script.
CHANGEABLE = re.compile(
    r'script|engine|trust|(ray|slurm|kubernetes)\..*|logdir|quiet|replicas|clock_(addr|port)|run\..*'
    r'|logger\..*|jax\.(platform|cache|data|fsdp|policy_devices|coordinator_address)'
    r'|agent\.(eval_greedy|report_videos)|replay\.(max_gb|sync|sync_every)'
)

OFFLINE = 'offline'  # the script that has no training environments
# What options mean in a run that has none of that name, where others are no choice.
ABSENT = {'agent.module': ''}


class Change(NamedTuple):
    """One option with its value in the run's folder and the value asked for now.

    None stands for an option that the other version of the program does not have.
    """

    name: str
    old: Any
    new: Any

    def __str__(self) -> str:
        shown = lambda value: "''" if value == '' else value
        return f'{self.name}: {shown(self.old)} -> {shown(self.new)}'


def check_resume(old: elements.Config, new: elements.Config) -> list[Change]:
    """Changes to apply when the run that was started with `old` goes on with `new`.

    Raises ConfigError with the difference if one of them cannot be made. Options that
    only one of the two has come from another version of the program, whose defaults
    keep the meaning of a run, so they are listed but not refused.
    """
    before = ABSENT | renew(old.flat, note=lambda note: None)
    after = ABSENT | new.flat
    changes = [
        Change(name, before.get(name), after.get(name))
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    ]
    refused = [
        change
        for change in changes
        if change.name in before
        and change.name in after
        and (not CHANGEABLE.fullmatch(change.name) or _is_other_kind(change))
    ]
    if refused:
        lines = '\n'.join(f'  {change}' for change in refused)
        raise ConfigError(
            'The run in this folder was started with other options, as its config.yaml '
            f'says:\n{lines}\n'
            'Leave them as they were to continue it, or start a new run in another '
            '--logdir (with --run.from_checkpoint to take over its agent).'
        )
    return changes


def _is_other_kind(change: Change) -> bool:
    """Whether a run with environments became one without, or the other way."""
    return change.name == 'script' and OFFLINE in (change.old, change.new)
