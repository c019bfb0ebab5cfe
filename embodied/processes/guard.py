"""Guard: ends what a process leaves behind.

    python -m embodied.processes.guard FD LINEAGE

Roles die with their launcher by a signal of the kernel, even if they hang. Programs
that they have started do not; this process outlives both and ends them.
"""

import os
import signal
import subprocess
import sys

from . import lineage
from .child_processes import start_module

__all__ = ['Guard', 'main']

MODULE = 'embodied.processes.guard'
DEAF_TO = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Guard:
    """Context after which, or after whose owner, no process with this tag lives on."""

    def __init__(self, tag: str):
        self._tag = tag
        self._lifeline = -1
        self._process: subprocess.Popen | None = None

    def __enter__(self) -> 'Guard':
        theirs, self._lifeline = os.pipe()
        self._process = start_module(MODULE, theirs, self._tag)
        os.close(theirs)
        return self

    def __exit__(self, *exc: object) -> None:
        os.close(self._lifeline)
        assert self._process
        self._process.wait()
        lineage.end(self._tag)  # if the guard itself was killed


def main() -> None:
    for number in DEAF_TO:
        signal.signal(number, signal.SIG_IGN)
    lifeline, tag = int(sys.argv[1]), sys.argv[2]
    os.read(lifeline, 1)  # Nothing is written: it returns when the owner is gone.
    lineage.end(tag)


if __name__ == '__main__':
    main()
