"""Lineage: finds and kills all that descends from a process, wherever it went.

Children inherit a tag in their environment. It stays when they leave their process
group or session and when their parents die, which is when a tree of processes is lost.
Only Linux shows the environments of processes; elsewhere nothing is found.
"""

import contextlib
import os
import select
import signal
from collections.abc import Iterator

__all__ = ['TAG', 'end', 'members']

TAG = 'DREAMER_LINEAGE'  # environment variable

DEATH_SECONDS = 10.0  # for the kernel to clear up a process that was killed
PASSES = 5  # a process may start another one while we look


def members(lineage: str) -> Iterator[int]:
    """Ids of the processes, other than this one, whose tag starts with `lineage`."""
    tag = f'{TAG}={lineage}'.encode()
    for name in os.listdir('/proc') if os.path.isdir('/proc') else ():
        if name.isdigit() and int(name) != os.getpid():
            # Those that ended meanwhile, and those of other users.
            with contextlib.suppress(OSError), open(f'/proc/{name}/environ', 'rb') as f:
                if any(entry.startswith(tag) for entry in f.read().split(b'\0')):
                    yield int(name)


def end(lineage: str) -> bool:
    """Kills the members and waits until they are gone; False if some stay."""
    for _ in range(PASSES):
        found = list(members(lineage))
        if not found:
            return True
        gone = [_kill(pid) for pid in found]
        if not all(gone):
            return False
    return False


def _kill(pid: int) -> bool:
    """Kills a process that need not be a child; False if it does not end."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        signal.pidfd_send_signal(fd, signal.SIGKILL)
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        return bool(poll.poll(1000 * DEATH_SECONDS))
    except ProcessLookupError:
        return True
    finally:
        os.close(fd)
