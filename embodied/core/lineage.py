"""Lineage: finds and kills all that descends from a process, wherever it went.

Children inherit a mark in their environment. It stays when they leave their process
group or session and when their parents die, which is when a tree of processes is lost.
Only Linux shows the environments of processes; elsewhere nothing is found.
"""

import contextlib
import os
import signal
from collections.abc import Iterator

__all__ = ['MARK', 'end', 'members']

MARK = 'DREAMER_LINEAGE'  # environment variable

PASSES = 5  # a process may start another one while we look


def members(lineage: str) -> Iterator[int]:
    """Ids of the processes, other than this one, whose mark starts with `lineage`."""
    mark = f'{MARK}={lineage}'.encode()
    for name in os.listdir('/proc') if os.path.isdir('/proc') else ():
        if name.isdigit() and int(name) != os.getpid():
            # Those that ended meanwhile, and those of other users.
            with contextlib.suppress(OSError), open(f'/proc/{name}/environ', 'rb') as f:
                if any(entry.startswith(mark) for entry in f.read().split(b'\0')):
                    yield int(name)


def end(lineage: str) -> int:
    """Kills the members; how many there were."""
    ended: set[int] = set()
    for _ in range(PASSES):
        found = set(members(lineage)) - ended
        if not found:
            break
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        ended |= found
    return len(ended)
