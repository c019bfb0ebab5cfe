"""Syncer: makes committed rows durable from time to time, in a thread of its own."""

import logging
import os
import threading
import weakref
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from ..storage.segment import Segment

__all__ = ['Syncer', 'sync_segments']

log = logging.getLogger(__name__)


class Syncer:
    """Calls a method of `owner` every `seconds` until `close` or the owner's end.

    It holds the owner weakly: a replay that is out of use gives its folder back.
    """

    def __init__(self, method: Callable[[], None], seconds: float):
        self._stop = threading.Event()
        self._thread = threading.Thread(
            target=_run,
            args=(weakref.WeakMethod(method, lambda _: self._stop.set()), self._stop),
            kwargs={'seconds': seconds},
            name='replay-sync',
            daemon=True,
        )
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join()


def _run(method: Callable, stop: threading.Event, seconds: float) -> None:
    while not stop.wait(seconds):
        call = method()
        if call is None:
            return
        try:
            call()
        except OSError as error:
            # Nothing is lost while the machine runs; the next round tries again.
            log.error('Replay could not be synced to disk: %s', error)
        del call


def sync_segments(segments: Iterable[Segment], lock: threading.RLock) -> None:
    """Advances `durable` to what is committed now, once that is on the disk."""
    for segment in segments:
        with lock:
            committed = segment.table['committed'].copy()
            segment.dirty = False
        if segment.path is None or not _flush(segment.path):
            continue
        segment.table['durable'] = np.maximum(segment.table['durable'], committed)
        _flush(segment.path)


def _flush(path: Path) -> bool:
    """Writes the dirty pages of a file; False if it was evicted meanwhile.

    fdatasync covers mapped pages on Linux and, unlike mmap.flush, lets other threads
    run.
    """
    try:
        fd = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        getattr(os, 'fdatasync', os.fsync)(fd)
    finally:
        os.close(fd)
    return True
