"""Summary of a run: what the list of runs shows of it, and what of it has changed."""

import math
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from embodied.logging import bottleneck

from ..series.records import FILES
from .folders import Run
from .labels import LABEL_FILE, read_label
from .options import group_key, read_options
from .run_files import last_lines
from .state import read_events, run_state

__all__ = ['LIVE', 'Summarizer', 'stamp']

# Files whose change is a change of the run, those for the index first. The folder
# `videos` changes with each file in it.
WATCHED = (*FILES, 'events.jsonl', 'status.json', 'config.yaml', 'videos', LABEL_FILE)
LIVE = ('starting', 'running', 'waiting', 'restarting', 'silent')
LAST_BYTES = 1 << 16  # end of metrics.jsonl that surely has a whole line in it
LATEST = (
    'episode/score',
    'fps/env',
    'fps/train',
    'replay/steps',
    'replay/fill',
    'replay/gigabytes',
    'replay/online_queue',
    'replay/balance',
    'replay/train_ratio',
    'replay/insert_wait',
    'replay/sample_wait',
    'learner/wait',
    'actor/batch_fill',
    'actor/batch_rows',
    'actor/policy_ms',
    'actor/replay_wait_ms',
    'actor/steps_per_second',
    'actor/calls_per_second',
    'train/updates',
    'run/seconds',
)

Stamp = tuple[tuple[int, int], ...]


def stamp(run: Run) -> Stamp:
    """Differs when a file of the run has changed."""
    found = []
    for name in WATCHED:
        try:
            info = os.lstat(run.path / name)
        except OSError:
            found.append((0, 0))
        else:
            size = info.st_size if stat.S_ISREG(info.st_mode) else 0
            found.append((size, info.st_mtime_ns // 1000))
    return tuple(found)


class Summarizer:
    """Makes summaries; remembers options, which are slow to read and hardly change."""

    def __init__(self) -> None:
        self._options: dict[Path, tuple[tuple[int, int], dict[str, Any]]] = {}

    def options(self, run: Run) -> dict[str, Any]:
        """The run's options by dotted names."""
        current = stamp(run)[WATCHED.index('config.yaml')]
        known = self._options.get(run.path)
        if not known or known[0] != current:
            known = (current, read_options(run.path / 'config.yaml'))
            self._options[run.path] = known
        return known[1]

    def summary(self, run: Run) -> dict[str, Any]:
        """What the page needs of a run before it is opened."""
        options = self.options(run)
        label = read_label(run.path)
        events = read_events(run.path)
        records = last_lines(run.path / 'metrics.jsonl', LAST_BYTES)
        latest: dict[str, Any] = {}
        for record in records:
            latest.update(record)
        first = next((e.get('time') for e in events if e.get('event') == 'start'), None)
        return {
            'id': run.id,
            'name': label.name or run.name,
            'folder': run.name,
            'label': label.name,
            'hidden': label.hidden,
            'notes': label.notes,
            'path': str(run.path),
            'task': str(options.get('task', '')),
            'seed': options.get('seed'),
            'script': str(options.get('script', '')),
            'group': group_key(options),
            'log_every': options.get('run.log_every'),
            'envs': options.get('run.envs'),
            'wanted_ratio': options.get('run.train_ratio'),
            'steps': options.get(_limit(options)),
            'files': dict(zip(WATCHED, stamp(run), strict=True)),
            'resumes': sum(event.get('event') == 'resume' for event in events),
            'started': first,
            'updated': latest.get('time'),
            'step': latest.get('step'),
            'bottleneck': _bottleneck(records),
            'latest': {name: latest[name] for name in LATEST if name in latest}
            | {k: v for k, v in latest.items() if k.startswith('usage/')},
            **run_state(run.path, events),
        }


def _limit(options: dict[str, Any]) -> str:
    """Name of the option that ends the run; steps of offline runs are updates."""
    offline = options.get('script') == 'offline' and options.get('run.updates')
    return 'run.updates' if offline else 'run.steps'


def _bottleneck(records: Sequence[dict[str, Any]]) -> str:
    """The line about the part that holds a run up, '' if too little is known."""
    means = {}
    for name in bottleneck.METRICS:
        values = [x[name] for x in records if _is_finite(x.get(name))]
        values = values[-bottleneck.window_of(name) :]
        if values:
            means[name] = sum(values) / len(values)
    return str(bottleneck.find_bottleneck(means) or '')


def _is_finite(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)
