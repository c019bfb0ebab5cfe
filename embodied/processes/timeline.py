"""Timeline: what the threads of several processes do within one second.

    timeline.json   {"traceEvents": [...]}, for ui.perfetto.dev or chrome://tracing

A run chooses the second when it starts, by the clock that all processes of a machine
share. Each process records spans in memory while it lasts and then adds them to the
file, which is whole after each of them. Functions are wrapped once, when the parts of a
process are made; where no timeline is wanted, `wrap` returns them as they are.
"""

import contextlib
import fcntl
import functools
import json
import math
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from .process_identity import ProcessIdentity

__all__ = ['DeviceTrack', 'Timeline', 'plan']

P = ParamSpec('P')
R = TypeVar('R')

FILE = 'timeline.json'
SECONDS = 1.0
LATE = 1.0  # seconds for spans that began in time, of which the rest is cut off
MOST_SPANS = 10_000  # per role; a file of several megabytes is slow to look at
HEAD, TAIL = b'{"traceEvents":[\n', b'\n]}\n'
MICRO = 1e6


def plan(logdir: Path, after: float) -> str:
    """Chooses the second that begins `after` seconds from now, for processes that are
    told of it; '' if that is 0 or infinite, which is never. The file of an earlier one
    is deleted.
    """
    if not after or after == math.inf:
        return ''
    (logdir / FILE).unlink(missing_ok=True)
    return f'{time.monotonic() + after:.6f} {ProcessIdentity.of().boot}'


class Timeline:
    """Spans of one role, which may share its process with other roles.

    planned: what `plan` returned. With '', or on another machine, whose clock is not
    the same, or too late, nothing is recorded.
    """

    def __init__(self, planned: str = '', logdir: Path = Path(), role: str = ''):
        begin, _, boot = planned.partition(' ')
        self._begin = float(begin) if begin else 0.0
        self._end = self._begin + SECONDS
        left = self._end - time.monotonic()
        here = bool(planned) and boot == ProcessIdentity.of().boot
        if here and left <= 0:
            print(
                f'{FILE} is without {role}, which was started after the second that it '
                'shows: choose a larger run.timeline.'
            )
        self.on = here and left > 0
        self._path, self._role = logdir / FILE, role
        self._spans: list[tuple[str, float, float, int, Mapping[str, Any]]] = []
        if self.on:
            timer = threading.Timer(left + LATE, self._write)
            timer.name, timer.daemon = 'timeline', True
            timer.start()

    def wrap(
        self,
        name: str,
        function: Callable[P, R],
        describe: Callable[P, Mapping[str, Any]] | None = None,
    ) -> Callable[P, R]:
        """The function, each call of which is a span.

        describe: details of a call, from its arguments.
        """
        if not self.on:
            return function

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            begin = time.monotonic()
            result = function(*args, **kwargs)
            details = describe(*args, **kwargs) if describe else {}
            self.add(name, begin, time.monotonic(), details)
            return result

        return call

    def add(
        self, name: str, begin: float, end: float, details: Mapping[str, Any] = {}
    ) -> None:
        """Adds a span of the calling thread, unless it lies outside of the second."""
        inside = begin < self._end and end > self._begin
        if self.on and inside and len(self._spans) < MOST_SPANS:
            thread = threading.get_native_id()
            self._spans.append((name, begin, end, thread, details))

    def _write(self) -> None:
        self.on = False
        _append(self._path, list(self._events()))

    def _events(self) -> Iterator[dict[str, Any]]:
        process = {'ph': 'M', 'pid': os.getpid()}
        full = ' (incomplete)' if len(self._spans) >= MOST_SPANS else ''
        yield _named({**process, 'name': 'process_name', 'tid': 0}, self._role + full)
        names = {x.native_id: x.name for x in threading.enumerate()}
        for thread in sorted({thread for _, _, _, thread, _ in self._spans}):
            about = {**process, 'name': 'thread_name', 'tid': thread}
            yield _named(about, names.get(thread, 'ended'))
        for name, begin, end, thread, details in self._spans:
            start, stop = self._place(begin), self._place(end)
            span = {'name': name, 'ph': 'X', 'ts': start, 'dur': stop - start}
            args = {'args': details} if details else {}
            yield {**span, 'pid': os.getpid(), 'tid': thread, **args}

    def _place(self, moment: float) -> int:
        """Microseconds since the begin, within the second. Whole ones, since rounding
        down keeps spans within each other."""
        return int(MICRO * min(max(0.0, moment - self._begin), SECONDS))


class DeviceTrack:
    """Spans of what a device computes in the background, one thing after the other.

    A thread waits for the results. A span begins when its work was asked for, or when
    the device was done with what it had to do before.
    """

    def __init__(self, timeline: Timeline, name: str):
        self._timeline, self._name = timeline, name
        self._asked: queue.SimpleQueue[tuple[float, Any]] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name='device', daemon=True)
        self._thread.start()

    def __call__(self, result: Any) -> None:
        """Takes an array of which the computation was just begun."""
        # One more at the end, with which the thread ends.
        if self._timeline.on or self._thread.is_alive():
            self._asked.put((time.monotonic(), result))

    def _work(self) -> None:
        free = 0.0
        while self._timeline.on:
            asked, result = self._asked.get()
            result.block_until_ready()
            begin, free = max(asked, free), time.monotonic()
            self._timeline.add(self._name, begin, free)


def _named(event: dict[str, Any], name: str) -> dict[str, Any]:
    return {**event, 'args': {'name': name}}


def _append(path: Path, events: list[dict[str, Any]]) -> None:
    """Adds events to the file; other processes do the same."""
    lines = (json.dumps(event, separators=(',', ':')) for event in events)
    text = ',\n'.join(lines).encode()
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    with contextlib.closing(os.fdopen(fd, 'r+b')) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        kept = max(0, os.fstat(fd).st_size - len(TAIL))
        file.seek(kept)
        file.write((b',\n' if kept else HEAD) + text + TAIL)
