"""Follower: keeps the index up with the folders and tells who listens what changed."""

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from ..runs.folders import Run, find_runs
from ..runs.summary import LIVE, Stamp, Summarizer, stamp
from .precedence import Precedence
from .records import FILES
from .series_index import PART, Index

__all__ = ['Follower']

# Looking is done at due times rather than by inotify: folders of runs often lie on
# network file systems, which tell nothing of what other machines write, and that a
# writer has died shows only in the time that passes. It costs a stat per file, and is
# done only while somebody listens or there is something left to index.
LOOK_EVERY = 0.5  # seconds
LOOK_SHARE = 0.05  # of the time is spent on looking, at most
TOLD_AT_ONCE = 10  # runs, so that a page with many of them has something to show soon

Listener = Callable[[dict[str, dict[str, Any]], list[str]], None]


class Follower:
    """A thread that looks at folders; what it found may be read from any other.

    Listeners are called in its thread with summaries of runs that changed, by id, and
    with the ids of runs that are gone.
    """

    def __init__(
        self,
        roots: Sequence[Path],
        index: Index,
        on_failure: Callable[[], None] = lambda: None,
    ):
        self._roots = roots
        self._index = index
        self._summarizer = Summarizer()
        self._precedence = Precedence()
        self._changed = threading.Condition()
        self._listeners: list[Listener] = []
        self._closed = False
        self._on_failure = on_failure
        self._failure: BaseException | None = None
        self._runs: dict[str, Run] = {}
        self._stamps: dict[str, Stamp] = {}
        self._summaries: dict[str, dict[str, Any]] = {}
        self._backlog: dict[Path, str] = {}  # files to index, and the ids of their runs
        self._offsets: dict[Path, int] = {}  # how much of a file is in the index
        self._thread = threading.Thread(target=self._follow, name='follower')

    def start(self) -> None:
        self._runs = {run.id: run for run in find_runs(self._roots)}
        self._thread.start()

    @property
    def closed(self) -> bool:
        return self._closed

    def stop(self) -> None:
        """Asks the thread to end, and wakes the listeners to see that."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            for listener in self._listeners:
                listener({}, [])

    def close(self) -> None:
        """Waits for the end of the thread."""
        self.stop()
        self._thread.join()

    def check(self) -> None:
        """Raises what has ended the thread, if anything has."""
        if self._failure:
            raise self._failure

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Adds a listener, tells it of all runs; returns how to leave."""
        with self._changed:
            listener(dict(self._summaries), [])
            self._listeners.append(listener)
            self._changed.notify_all()

        def leave() -> None:
            with self._changed:
                self._listeners.remove(listener)

        return leave

    def runs(self) -> dict[str, Run]:
        """All runs by id."""
        with self._changed:
            return dict(self._runs)

    def question(self) -> AbstractContextManager[None]:
        """Around the answer to a question, which following the runs waits for."""
        return self._precedence.question()

    def options(self, run: Run) -> dict[str, Any]:
        return self._summarizer.options(run)

    def summaries(self) -> dict[str, dict[str, Any]]:
        """What is known of all runs; those found just now may be missing."""
        with self._changed:
            return dict(self._summaries)

    def _follow(self) -> None:
        try:
            self._index.forget_missing()
            while not self._closed:
                began = time.monotonic()
                self._look()
                ended = time.monotonic()
                pause = max(LOOK_EVERY, (ended - began) / LOOK_SHARE)
                self._catch_up(ended + pause)
                with self._changed:
                    if not self._backlog and not self._closed:
                        self._changed.wait(pause if self._listeners else None)
        except BaseException as error:  # noqa: BLE001, raised again by check()
            self._failure = error
            self._on_failure()

    def _look(self) -> None:
        """Finds new, changed and missing runs; the newest are told of first."""
        runs = {run.id: run for run in find_runs(self._roots)}
        stamps = {key: stamp(run) for key, run in runs.items()}
        gone = [key for key in self._runs if key not in runs]
        with self._changed:
            self._runs = runs
        if gone:
            self._publish({}, gone)
        changes: dict[str, dict[str, Any]] = {}
        for key in sorted(runs, key=lambda key: _age(stamps[key])):
            known = self._summaries.get(key)
            moved = stamps[key] != self._stamps.get(key)
            if moved:
                self._stamps[key] = stamps[key]
                self._expect(runs[key], stamps[key])
            if moved or (known and known['state'] in LIVE):
                self._precedence.give_way()
                changes[key] = self._summary(runs[key])
            if len(changes) >= TOLD_AT_ONCE:
                self._publish(changes, [])
                changes = {}
            if self._closed:
                return
        self._publish(changes, [])

    def _expect(self, run: Run, current: Stamp) -> None:
        """Notes the files of a run that have something for the index."""
        for name, (size, _) in zip(FILES, current, strict=False):
            path = run.path / name
            if size < self._offsets.get(path, 0):  # another file than before
                self._offsets[path] = 0
            if size - self._offsets.get(path, 0) >= PART:
                self._backlog[path] = run.id

    def _catch_up(self, until: float) -> None:
        """Indexes until it is time to look again."""
        while self._backlog and not self._closed and time.monotonic() < until:
            path, key = next(iter(self._backlog.items()))
            if not self._index.advance(path, self._precedence.give_way):
                del self._backlog[path]
                self._offsets[path] = self._index.read(path, [])[0]
                if key in self._runs and key not in self._backlog.values():
                    self._publish({key: self._summary(self._runs[key])}, [])

    def _summary(self, run: Run) -> dict[str, Any]:
        indexing = run.id in self._backlog.values()
        return self._summarizer.summary(run) | {'indexing': indexing}

    def _publish(self, summaries: dict[str, dict[str, Any]], gone: list[str]) -> None:
        with self._changed:
            news = {
                key: summary
                for key, summary in summaries.items()
                if summary != self._summaries.get(key)
            }
            self._summaries.update(news)
            for key in gone:
                self._summaries.pop(key, None)
                self._stamps.pop(key, None)
            if news or gone:
                for listener in self._listeners:
                    listener(news, gone)


def _age(times: Stamp) -> int:
    """Smaller for runs that were written to later."""
    return -max(modified for _, modified in times)
