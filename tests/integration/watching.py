"""Blocks until the files of a folder tell something: inotify, without polling."""

import ctypes
import os
import select
import time

IN_MODIFY, IN_MOVED_TO, IN_CREATE = 0x2, 0x80, 0x100


class FolderWatch:
    """Wakes up whenever a file right inside of `folder` changes."""

    def __init__(self, folder):
        self._process = -1
        libc = ctypes.CDLL(None, use_errno=True)
        self._fd = libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        mask = IN_MODIFY | IN_MOVED_TO | IN_CREATE
        assert libc.inotify_add_watch(self._fd, os.fsencode(folder), mask) >= 0
        self._poll = select.poll()
        self._poll.register(self._fd, select.POLLIN)

    def await_that(self, condition, seconds):
        """Blocks until `condition()` is true, and returns what it returned."""
        deadline = time.monotonic() + seconds
        while not (result := condition()):
            left = deadline - time.monotonic()
            assert left > 0, f'not within {seconds} s: {condition}'
            if (self._fd, select.POLLIN) in self._poll.poll(1000 * left):
                os.read(self._fd, 1 << 16)
        return result

    def follow(self, pid):
        """Wakes up, too, when this process ends, after which conditions must hold."""
        self._process = os.pidfd_open(pid)
        self._poll.register(self._process, select.POLLIN)

    def close(self):
        os.close(self._fd)
        if self._process >= 0:
            os.close(self._process)
