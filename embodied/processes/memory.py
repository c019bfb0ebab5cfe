"""Memory of processes: how much they use, and pages of this one that can go back."""

import ctypes
import functools
from collections.abc import Callable
from pathlib import Path

import psutil

__all__ = ['give_back', 'used_by']


def used_by(process: psutil.Process) -> int:
    """Bytes of a process: its own pages and its share of those that several use (PSS).

    Without Linux, or where that may not be read, all resident pages (RSS), so that
    pages of several processes count for each of them. Raises psutil.NoSuchProcess.
    """
    try:
        lines = Path(f'/proc/{process.pid}/smaps_rollup').read_text().splitlines()
        share = next(line for line in lines if line.startswith('Pss:'))
    except OSError:
        return process.memory_info().rss
    return 1024 * int(share.split()[1])


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
