"""Memory of this process that was freed and can go back to the system."""

import ctypes
import functools
from collections.abc import Callable

__all__ = ['give_back']


def give_back() -> None:
    """Returns free pages; for processes that needed much more memory before than now.

    The allocator of the C library keeps what lies below anything that is in use, which
    after some thousand messages of all sizes is most of it.
    """
    trim = _trim()
    if trim is not None:
        trim(0)


@functools.cache
def _trim() -> Callable[[int], int] | None:
    """A function of glibc; other libraries give back by themselves, or cannot."""
    return getattr(ctypes.CDLL(None), 'malloc_trim', None)
