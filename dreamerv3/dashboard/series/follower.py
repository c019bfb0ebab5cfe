"""Follower: watches the folders of runs and reports changes to listeners."""

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..runs.folders import Run, find_runs
from ..runs.run_files import printable
from ..runs.summary import LIVE, Stamp, Summarizer, stamp

__all__ = ['Follower']

# Network file systems do not announce what another machine writes, and a writer that
# dies announces nothing at all. So files are looked at when it is due: a stat per file,
# and only while a page is open.
LOOK_EVERY = 0.5  # seconds
LOOK_SHARE = 0.05  # of a core is spent on looking, at most
BATCH = 10  # runs per report, so that a page with many of them shows some soon

Listener = Callable[[dict[str, dict[str, Any]], list[str]], None]


class Follower:
    """A thread that watches folders; its methods may be called from any other.

    Listeners are called in its thread with summaries of runs that changed, by id, and
    with the ids of runs that are gone.
    """

    def __init__(
        self, roots: Sequence[Path], on_failure: Callable[[], None] = lambda: None
    ):
        self._roots = roots
        self._summarizer = Summarizer()
        self._changed = threading.Condition()
        self._listeners: list[Listener] = []
        self._closed = False
        self._on_failure = on_failure
        self._failure: BaseException | None = None
        self._runs: dict[str, Run] = {}
        self._stamps: dict[str, Stamp] = {}
        self._summaries: dict[str, dict[str, Any]] = {}
        self._thread = threading.Thread(target=self._follow, name='follower')

    def start(self) -> None:
        self._runs = {run.id: run for run in find_runs(self._roots)}
        self._thread.start()

    @property
    def places(self) -> list[str]:
        """The folders that were given."""
        return [printable(str(root)) for root in self._roots]

    @property
    def closed(self) -> bool:
        return self._closed

    def stop(self) -> None:
        """Ends the thread after its current look, and wakes the listeners."""
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
        """Adds a listener, reports all runs to it, and returns how to remove it."""
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

    def options(self, run: Run) -> dict[str, Any]:
        return self._summarizer.options(run)

    def summaries(self) -> dict[str, dict[str, Any]]:
        """Summaries by id; runs that were found just now may be missing."""
        with self._changed:
            return dict(self._summaries)

    def _follow(self) -> None:
        try:
            while not self._closed:
                began = time.thread_time()
                found_new = self._look()
                cost = 0.0 if found_new else time.thread_time() - began
                pause = max(LOOK_EVERY, cost / LOOK_SHARE)
                with self._changed:
                    if not self._closed:
                        self._changed.wait(pause if self._listeners else None)
        except BaseException as error:  # noqa: BLE001, raised again by check()
            self._failure = error
            self._on_failure()

    def _look(self) -> bool:
        """Publishes new, changed and missing runs, those first that were written to
        last. Returns whether there are new ones, which take longer."""
        runs = {run.id: run for run in find_runs(self._roots)}
        stamps = {key: stamp(run) for key, run in runs.items()}
        gone = [key for key in self._runs if key not in runs]
        found_new = bool(runs.keys() - self._stamps.keys())
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
            if moved or (known and known['state'] in LIVE):
                changes[key] = self._summarizer.summary(runs[key])
            if len(changes) >= BATCH:
                self._publish(changes, [])
                changes = {}
            if self._closed:
                return found_new
        self._publish(changes, [])
        return found_new

    def _publish(self, summaries: dict[str, dict[str, Any]], gone: list[str]) -> None:
        with self._changed:
            changed = {
                key: summary
                for key, summary in summaries.items()
                if summary != self._summaries.get(key)
            }
            self._summaries.update(changed)
            for key in gone:
                self._summaries.pop(key, None)
                self._stamps.pop(key, None)
            if changed or gone:
                for listener in self._listeners:
                    listener(changed, gone)


def _age(times: Stamp) -> int:
    """Smaller for runs that were written to later."""
    return -max(modified for _, modified in times)
