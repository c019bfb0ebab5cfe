"""Timer: a clock of the kernel that one thread sleeps on and another one sets.

To set it wakes nobody, which a condition with a timeout could not do.
"""

import ctypes
import os
import time

__all__ = ['Timer']

NANO = 10**9


class Timer:
    """Rings once, some time after it was last set. Linux only."""

    def __init__(self) -> None:
        # A library that keeps the interpreter while it is called: for so short a call
        # it is not worth to let another thread have it.
        self._libc = ctypes.PyDLL(None, use_errno=True)
        self._fd = self._libc.timerfd_create(time.CLOCK_MONOTONIC, os.O_CLOEXEC)
        if self._fd < 0:
            raise _error()
        self._spec = (ctypes.c_long * 4)()  # interval and first time, both s and ns

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)

    @staticmethod
    def exists() -> bool:
        return hasattr(ctypes.PyDLL(None), 'timerfd_create')

    def set(self, seconds: float) -> None:
        """Rings then, and not when it was set to before."""
        nanoseconds = max(1, int(NANO * seconds))  # Zero would mean never.
        self._spec[2], self._spec[3] = divmod(nanoseconds, NANO)
        if self._libc.timerfd_settime(self._fd, 0, self._spec, None):
            raise _error()

    def wait(self) -> None:
        """Blocks until it rings."""
        os.read(self._fd, 8)


def _error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))
