"""Child processes: see the modules that their parent sees, and die when it dies.

The parent starts a module with one end of a pipe. The first message through it says how
the child becomes like its parent, and what it runs.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

__all__ = ['Surroundings', 'connect_parent', 'kill_group', 'start_module']

PR_SET_PDEATHSIG = 1  # option of prctl: the signal to get when the parent dies


class Surroundings(NamedTuple):
    """What a child takes over from its parent before it unpickles anything."""

    parent: int  # process id
    die_with_parent: bool  # by signal, even if the child hangs
    path: list[str]  # sys.path
    pythonpath: str | None  # PYTHONPATH

    @classmethod
    def here(cls) -> 'Surroundings':
        """What a child that this thread starts takes over from this process."""
        # Linux sends the signal when the starting thread ends, so only the main one
        # may ask for it. Otherwise children have to watch the end of their pipe.
        return cls(
            parent=os.getpid(),
            die_with_parent=threading.current_thread() is threading.main_thread(),
            path=sys.path.copy(),
            pythonpath=os.environ.get('PYTHONPATH'),
        )

    def adopt(self) -> None:
        """Makes the calling process, the child, like its parent."""
        if self.die_with_parent and sys.platform == 'linux':
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != self.parent:  # It died before it could be watched.
                sys.exit(1)
        sys.path[:] = self.path
        # The parent set this one for us to find the package; programs that are
        # started from here should see the user's.
        os.environ.pop('PYTHONPATH', None)
        if self.pythonpath is not None:
            os.environ['PYTHONPATH'] = self.pythonpath


def start_module(
    module: str,
    fd: int,
    *args: str,
    env: Mapping[str, str] | None = None,
    **options: Any,
) -> subprocess.Popen:
    """Starts `python -m module FD ...` with that descriptor, in a process group of its
    own, with the variables `env` in addition to ours.

    No fork: the child shares no locks, threads or device handles with us.
    """
    # -P: the current folder counts only if it is on the parent's path.
    command = [sys.executable, '-P', '-m', module, str(fd), *args]
    path = os.pathsep.join(folder or os.getcwd() for folder in sys.path)
    return subprocess.Popen(
        command,
        env={**os.environ, **(env or {}), 'PYTHONPATH': path},
        stdin=subprocess.DEVNULL,
        pass_fds=[fd],
        process_group=0,  # The terminal's Ctrl-C is for the parent alone.
        **options,
    )


def connect_parent() -> tuple[Connection, Any]:
    """In the child: its end of the pipe, and the first message; None if the parent is
    gone already.

    Signals of the terminal are ignored from now on: the parent reacts to them and asks
    the child to end.
    """
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    fd = int(sys.argv[1])
    os.set_inheritable(fd, False)
    pipe = Connection(fd)
    try:
        return pipe, pipe.recv()
    except EOFError:
        return pipe, None


def kill_group(pid: int) -> None:
    """Kills a child and its process group, if they still exist.

    The caller must not have asked for the exit code yet, or the id may be reused.
    """
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
