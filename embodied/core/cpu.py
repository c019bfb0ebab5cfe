"""Processor time that threads and processes have used so far, in seconds."""

import os
from collections.abc import Iterable
from pathlib import Path

import psutil

__all__ = ['of_children', 'of_family', 'of_thread']

TASKS = Path('/proc/self/task')


def of_family(pid: int) -> float:
    """Of a process and those that it started."""
    try:
        process = psutil.Process(pid)
        return _sum([process, *process.children(recursive=True)])
    except psutil.NoSuchProcess:
        return 0.0


def of_children() -> float:
    """Of the processes that we have started."""
    return _sum(psutil.Process().children(recursive=True))


def of_thread(native_id: int) -> float:
    """Of one of our threads; 0 if it has ended, or where Linux is not."""
    try:
        stat = (TASKS / str(native_id) / 'stat').read_text()
    except OSError:
        return 0.0
    user, system = stat.rpartition(')')[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf('SC_CLK_TCK')


def _sum(processes: Iterable[psutil.Process]) -> float:
    used = 0.0
    for one in processes:
        try:
            used += sum(one.cpu_times()[:4])  # user, system, and of ended children
        except psutil.NoSuchProcess:
            continue  # ended since it was listed
    return used
