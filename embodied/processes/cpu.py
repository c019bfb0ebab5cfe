"""Processors: cores that this process may use, and CPU time in seconds."""

import math
import os
from collections.abc import Iterable
from pathlib import Path

import psutil

__all__ = ['count_cores', 'idle', 'of_children', 'of_family', 'of_process', 'of_thread']

TASKS = Path('/proc/self/task')
CGROUPS = Path('/sys/fs/cgroup')
OWN_CGROUPS = Path('/proc/self/cgroup')  # lines of number:controllers:path


def count_cores() -> int:
    """Cores that this process may use: of the machine those that its CPU affinity and
    the CPU limits of its cgroups leave, rounded up."""
    if hasattr(os, 'process_cpu_count'):
        allowed = os.process_cpu_count() or 1
    elif hasattr(os, 'sched_getaffinity'):
        allowed = len(os.sched_getaffinity(0))
    else:
        allowed = os.cpu_count() or 1
    return max(1, math.ceil(min(allowed, _cgroup_limit())))


def of_family(pid: int) -> float:
    """CPU seconds of a process and of those that it started; 0 if it is gone."""
    try:
        process = psutil.Process(pid)
        return _sum([process, *process.children(recursive=True)])
    except psutil.NoSuchProcess:
        return 0.0


def of_children() -> float:
    """CPU seconds of the processes that this one has started."""
    return _sum(psutil.Process().children(recursive=True))


def of_process(process: psutil.Process) -> float:
    """CPU seconds of a process and of its children that have ended; 0 if it is gone."""
    return _sum([process])


def idle() -> float:
    """Seconds that the cores of this machine were idle since it was booted, of all
    cores together."""
    return psutil.cpu_times().idle


def of_thread(native_id: int) -> float:
    """CPU seconds of a thread of this process; 0 if it has ended, or without Linux."""
    try:
        stat = (TASKS / str(native_id) / 'stat').read_text()
    except OSError:
        return 0.0
    user, system = stat.rpartition(')')[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf('SC_CLK_TCK')


def _cgroup_limit() -> float:
    """Cores' worth of CPU time that cgroups allow; infinite without a limit."""
    try:
        lines = OWN_CGROUPS.read_text().splitlines()
    except OSError:
        return math.inf  # not Linux
    limits = [math.inf]
    for line in lines:
        _, controllers, path = line.split(':', 2)
        if not controllers:  # version 2
            limits += map(_read_limit, _levels(CGROUPS, path))
        elif 'cpu' in controllers.split(','):
            limits += map(_read_old_limit, _levels(CGROUPS / controllers, path))
    return min(limits)


def _levels(root: Path, path: str) -> list[Path]:
    """The folder of a cgroup and those above it, whose limits count as well.

    In a container the root may show the cgroup itself, and `path` lead nowhere.
    """
    inner = root / path.lstrip('/')
    return [x for x in (inner, *inner.parents) if x.is_relative_to(root)]


def _read_limit(group: Path) -> float:
    return _cores(_words(group / 'cpu.max'))


def _read_old_limit(group: Path) -> float:
    names = 'cpu.cfs_quota_us', 'cpu.cfs_period_us'
    return _cores([word for name in names for word in _words(group / name)])


def _cores(words: list[str]) -> float:
    """Quota and period in microseconds as cores; a quota that is no positive number
    stands for none."""
    if len(words) != 2 or not all(word.isdecimal() for word in words):
        return math.inf
    quota, period = map(int, words)
    return quota / period if period else math.inf


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []  # The root has no limit, and no file for it.


def _sum(processes: Iterable[psutil.Process]) -> float:
    used = 0.0
    for one in processes:
        try:
            used += sum(one.cpu_times()[:4])  # user, system, and of ended children
        except psutil.NoSuchProcess:
            continue  # ended since it was listed
    return used
