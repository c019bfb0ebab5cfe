"""The folder of a run: its name, its lock, its saved config and its start events.

lock         held by the process that runs, with its pid, host and start time
config.yaml  the resolved options
events.jsonl starts, changed options and stops
provenance.jsonl  what each start was made with
"""

import contextlib
import datetime
import os
import platform
import re
import sys
from pathlib import Path
from typing import Any

import elements
from ruamel.yaml.error import YAMLError

from embodied.core.errors import ConfigError
from embodied.core.signals import StopSignals
from embodied.logging import EventFile
from embodied.run.lock import FolderLock
from embodied.run.outcome import Outcome
from embodied.run.resume import Change, check_resume

from . import config as config_lib
from . import provenance

__all__ = ['RunFolder', 'expand']


def expand(logdir: str, task: str) -> str:
    """The folder's name with `~`, {timestamp} and {task} filled in."""
    now = datetime.datetime.now()
    filled = logdir.replace('{timestamp}', now.strftime('%Y%m%dT%H%M%S'))
    # Names of tasks may contain slashes and colons.
    filled = filled.replace('{task}', re.sub(r'[^\w.-]+', '-', task))
    unknown = re.search(r'\{\w*\}', filled)
    if unknown:
        raise ConfigError(
            f"logdir='{logdir}' contains {unknown[0]}. "
            'What can be filled in are {timestamp} and {task}.'
        )
    return str(Path(filled).expanduser().absolute())


class RunFolder:
    """Holds the folder of `config.logdir` for one process while in a `with` block.

    Its events always say how that ended: by an error, a stop signal, or as `outcome`
    says.
    """

    def __init__(self, config: elements.Config):
        self._config = config
        self.path = Path(config.logdir)
        self.outcome: Outcome | None = None
        self._lock = FolderLock(self.path)
        # From the start event to the stop event: loops only look at these signals.
        self._signals = StopSignals()

    def __enter__(self) -> 'RunFolder':
        with contextlib.ExitStack() as stack:
            stack.enter_context(self._lock)
            stack.enter_context(self._signals)
            self._start()
            stack.pop_all()
        return self

    def __exit__(self, kind: Any, error: BaseException | None, stack: Any) -> None:
        outcome = Outcome.after(error) if error else self.outcome
        outcome = outcome or Outcome.of(self._signals.received or '')
        try:
            self._event('stop', **outcome._asdict())
        except OSError as e:  # A full disk may be the error, which must not get lost.
            print(f'Cannot write to {self.path}: {e.strerror}', file=sys.stderr)
        self._signals.__exit__(kind, error, stack)
        self._lock.__exit__(kind, error, stack)

    def _start(self) -> None:
        """Records the start; a folder that holds a run already is continued."""
        path = self.path / 'config.yaml'
        old = _load(path) if path.exists() else None
        new, visiting = self._config, False
        if old and new.script == 'eval_only':
            new, visiting = new.update(script=old.script), True
        changes = check_resume(old, new) if old else []
        self._event(
            'resume' if old else 'start',
            script=self._config.script,
            pid=os.getpid(),
            host=platform.node(),
        )
        if changes:
            self._event('changed', options=_listed(changes))
        provenance.record(self.path)
        if not visiting:  # the folder still belongs to the run that is evaluated
            temporary = path.with_name('.config.yaml')
            temporary.write_text(config_lib.dump(self._config))
            temporary.replace(path)

    def _event(self, event: str, **details: Any) -> None:
        events = EventFile(self.path)
        events.add(event, **details)
        events.close()


def _load(path: Path) -> elements.Config:
    try:
        return elements.Config.load(path)
    except (YAMLError, TypeError, ValueError, AssertionError) as e:
        raise ConfigError(
            f'{path} cannot be read: {e}. Choose another --logdir to start afresh.'
        ) from e


def _listed(changes: list[Change]) -> dict[str, list[Any]]:
    return {change.name: [change.old, change.new] for change in changes}
