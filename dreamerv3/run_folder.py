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

from embodied.core.checkpoint import RUN_SUBFOLDER, Checkpoint
from embodied.core.checkpoint_folder import AGENT
from embodied.core.errors import ConfigError
from embodied.core.files import set_aside, why_unreadable, write_whole
from embodied.logging import add_event
from embodied.logging.jsonl import SCORES
from embodied.processes.folder_lock import FolderLock
from embodied.processes.signals import StopSignals
from embodied.replay.recovery.folder import list_segments
from embodied.run.shared.outcome import Outcome
from embodied.run.shared.resume import Change, check_resume

from . import config as config_lib
from . import provenance

__all__ = ['RunFolder', 'expand']

CONFIG = 'config.yaml'
REPLAY = 'replay'  # folder of recorded steps


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
            text = f'Cannot write to {self.path}: {e.strerror}'
            if error is None:
                print(text, file=sys.stderr)
            else:
                error.add_note(text)
        self._signals.__exit__(kind, error, stack)
        self._lock.__exit__(kind, error, stack)

    def _start(self) -> None:
        """Records the start; a folder that holds a run already is continued."""
        begun = any((self.path / name).exists() for name in (CONFIG, RUN_SUBFOLDER))
        new, visiting = self._config, begun and self._config.script == 'eval_only'
        old = self._read_config() if begun else None
        if old and visiting:
            new = new.update({k: old[k] for k in ('script', 'data') if k in old})
        changes = check_resume(old, new) if old and self._is_bound() else []
        self._event(
            'resume' if begun else 'start',
            script=self._config.script,
            pid=os.getpid(),
            host=platform.node(),
        )
        if changes:
            self._event('changed', options=_listed(changes))
        provenance.record(self.path, self._config.agent.module)
        if not visiting:  # the folder still belongs to the run that is evaluated
            write_whole(self.path / CONFIG, config_lib.dump(self._config))

    def _is_bound(self) -> bool:
        """Whether anything is there that the options have to fit. A start that was
        refused, or failed before its first save, leaves none."""
        saves = self.path / RUN_SUBFOLDER
        if Checkpoint(saves).exists() or Checkpoint(saves / AGENT).exists():
            return True
        scores = self.path / SCORES  # of an evaluation, which saves no agent
        has_scores = scores.exists() and scores.stat().st_size > 0
        return has_scores or bool(list_segments(self.path / REPLAY))

    def _read_config(self) -> elements.Config | None:
        """The options that the run has had so far. None if they are lost: then the
        options of the command line are used."""
        path = self.path / CONFIG
        try:
            stored = elements.Config.load(path)
            if not {'script', 'task'} <= stored.flat.keys():
                raise ValueError('there are no options of a run in it')
            return stored
        except FileNotFoundError:
            reason, kept = 'it is missing', ''
        except OSError as error:
            raise ConfigError(f'{path} cannot be read: {error.strerror}.') from error
        except Exception as error:  # noqa: BLE001 (a parser of bad bytes may raise any)
            reason, kept = why_unreadable(error), set_aside(path).name
        print(
            f'{path} cannot be read: {reason.splitlines()[0]}. The options of the '
            f'command line are used{f"; it is kept as {kept}" if kept else ""}.',
            file=sys.stderr,
        )
        self._event('damaged', file=str(path), reason=reason, kept=kept)
        return None

    def _event(self, event: str, **details: Any) -> None:
        add_event(self.path, event, **details)


def _listed(changes: list[Change]) -> dict[str, list[Any]]:
    return {change.name: [change.old, change.new] for change in changes}
