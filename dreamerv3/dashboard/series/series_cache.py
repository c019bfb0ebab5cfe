"""Series cache: the series of all runs that a page has requested, in memory.

Files are read when a request needs them, from where the last one stopped, and for a
bounded time. What is not read by then is drawn from lines that are spread over it, so
the first response shows whole curves, which become exact with further requests.
"""

import threading
import time
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from . import buckets
from .clock import SECONDS, Clock
from .file_series import FileSeries
from .records import FILES, SCORES

__all__ = ['FIELDS', 'RunSeries', 'SeriesCache', 'home', 'read_run']

UPDATES = 'train/updates'  # metric
# Axes, and the field of a bucket that a place on it is computed from and replaces.
FIELDS = {'step': 'step', 'frames': 'step', 'updates': 'time', 'time': 'time'}

WITHIN = 0.3  # seconds of reading per request
SAMPLES = 1500  # lines per request, over all its runs
FEWEST_SAMPLES = 20  # of them per run
MOST_BYTES = 128 << 20  # of all series; beyond it they become coarser


class RunSeries(NamedTuple):
    """Buckets by metric, in the order of writing, and how to place them in time.

    share: how much of the run's files is read, from 0 to 1.
    updates: `train/updates`, empty if the run has not written it.
    """

    series: dict[str, np.ndarray]
    clock: Clock
    start: float
    share: float
    updates: np.ndarray = buckets.EMPTY.buckets

    def over(self, name: str, axis: str, repeat: float = 1.0) -> np.ndarray:
        """A metric in order of its places on an axis (see `FIELDS`): steps, frames,
        updates, or seconds of training (`time`).

        repeat: frames per step.
        """
        found = self.series[name].copy()
        if axis == 'frames':
            found['step'] *= repeat
        elif axis == 'time':
            found['time'] = self.clock.seconds(found['time'], self.start)
        elif axis == 'updates':
            return self._over_updates(found)
        return buckets.forward(found, FIELDS[axis])

    def _over_updates(self, found: np.ndarray) -> np.ndarray:
        if not len(self.updates):
            return found[:0]
        known = self.updates[np.argsort(self.updates['time'], kind='stable')]
        found['time'] = np.interp(found['time'], known['time'], known['mean'])
        # Before the first update there are many lines at one place.
        return buckets.joined(buckets.forward(found, 'time'), 'time')


class SeriesCache:
    """Reads the series of runs, in any thread."""

    def __init__(self, within: float = WITHIN, most_bytes: int = MOST_BYTES):
        self._within = within
        self._most_bytes = most_bytes
        self._limit: int = buckets.MOST_BUCKETS
        self._lock = threading.Lock()
        self._files: dict[Path, dict[str, FileSeries]] = {}  # by folder and name

    def retain(self, folders: Iterable[Path]) -> None:
        """Forgets all runs but these."""
        with self._lock:
            for folder in self._files.keys() - set(folders):
                del self._files[folder]

    def names(self, folders: Sequence[Path]) -> list[str]:
        """The metrics of the runs, as far as their files are read."""
        with self._lock:
            files = self._look(folders)
            found = {name for file in files for name in file.series}
            for file in files:
                if file.behind:
                    found.update(file.sample(FEWEST_SAMPLES))
        return sorted(found)

    def read(
        self, folders: Sequence[Path], names: Collection[str]
    ) -> dict[Path, RunSeries]:
        """The series of the metrics, for each of the runs."""
        samples = max(FEWEST_SAMPLES, SAMPLES // max(1, len(folders)))
        with self._lock:
            self._read(self._look(folders))
            return {run: self._series(run, names, samples) for run in folders}

    def _series(self, folder: Path, names: Collection[str], samples: int) -> RunSeries:
        files = self._files[folder]
        series: dict[str, np.ndarray] = {}
        wanted = {*names, UPDATES}
        clock = files[home(SECONDS)].clock
        starts = []
        for filename, file in files.items():
            rest = file.sample(samples) if file.behind else {}
            if SECONDS in rest:  # else times of day are drawn as they are
                clock = clock.copy()
                clock.learn(rest[SECONDS]['time'], rest[SECONDS]['mean'])
            starts += [points['time'].min() for points in rest.values()]
            for name in wanted:
                if home(name) != filename:
                    continue
                known = [file.series[name].buckets] if name in file.series else []
                if parts := [*known, *([rest[name]] if name in rest else [])]:
                    series[name] = np.concatenate(parts)
        return _placed(series, list(files.values()), clock, starts)

    def _look(self, folders: Sequence[Path]) -> list[FileSeries]:
        """The files of the runs, which know how long they are now."""
        for folder in folders:
            if folder not in self._files:
                make = {name: FileSeries(folder / name, self._limit) for name in FILES}
                self._files[folder] = make
        files = [file for folder in folders for file in self._files[folder].values()]
        for file in files:
            file.look()
        return files

    def _read(self, files: Sequence[FileSeries]) -> None:
        """Reads on, evenly, for a bounded time."""
        deadline = time.monotonic() + self._within
        while behind := [file for file in files if file.behind]:
            min(behind, key=lambda file: file.share).advance()
            if time.monotonic() > deadline:
                break
        self._shrink()

    def _shrink(self) -> None:
        files = [file for run in self._files.values() for file in run.values()]
        while self._limit > 1 and sum(x.bytes for x in files) > self._most_bytes:
            self._limit //= 2
            for file in files:
                file.shrink(self._limit)


def read_run(folder: Path, metric: str) -> RunSeries:
    """Every point of one metric of a run."""
    only = {metric, SECONDS}
    files = [FileSeries(folder / name, np.inf, only).read() for name in FILES]
    clock = next(file.clock for file in files if file.path.name == home(SECONDS))
    found = {k: v.buckets for file in files for k, v in file.series.items()}
    return _placed(found, files, clock)


def _placed(
    series: dict[str, np.ndarray],
    files: Sequence[FileSeries],
    clock: Clock,
    sampled: Sequence[float] = (),
) -> RunSeries:
    """sampled: times of lines that are not read yet, among them the first ones."""
    starts = [*sampled, *(file.start for file in files if file.start is not None)]
    share = min(file.share for file in files)
    updates = series.get(UPDATES, buckets.EMPTY.buckets)
    return RunSeries(series, clock, min(starts, default=0.0), share, updates)


def home(name: str) -> str:
    """The file that a metric is in."""
    return 'scores.jsonl' if name.startswith(SCORES) else 'metrics.jsonl'
