"""Restoring: continues a run from its last save, or begins with another agent."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...core import base
from ...core.checkpoint import Checkpoint, load_part
from ...logging import add_event, last_record
from .settings import Settings

__all__ = ['note_rewind', 'restore']


def restore(
    checkpoint: Checkpoint,
    agent: base.Agent,
    settings: Settings,
    note: Callable[..., Any],
) -> bool:
    """Loads the run's newest save; without one, the agent that the settings name.

    Returns whether there was a save. note: adds an event.
    """
    if checkpoint.exists():
        checkpoint.load()
        return True
    if settings.from_checkpoint:
        data = load_part(settings.from_checkpoint, 'agent', settings.trust)
        agent.load(data, regex=settings.from_checkpoint_regex)
        note('initialized', source=settings.from_checkpoint)
    return False


def note_rewind(logdir: str | os.PathLike, metric: str, value: int) -> None:
    """Adds an event if the metrics of the run were further than what was restored."""
    record = last_record(Path(logdir) / 'metrics.jsonl', metric)
    before = int(record[metric]) if record else value
    if before > value:
        change = {'from': before, 'to': value}
        reason = 'restored from a checkpoint that is older than the last metrics'
        add_event(logdir, 'rewind', metric=metric, **change, reason=reason)
