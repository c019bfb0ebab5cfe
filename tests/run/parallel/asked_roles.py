"""Roles that do one thing each, for tests of what starts and stops them.

Each is called with the `health` of its process. `door` is the path of a named pipe into
which a process writes its id when it is there.
"""

import ctypes
import dataclasses
import os
import queue
import signal
import subprocess
import sys
import threading
from pathlib import Path

from embodied.processes.signals import StopSignals
from embodied.run.parallel.supervision.supervisor import Supervisor


@dataclasses.dataclass
class Settings:
    logdir: Path
    grace: float = 30.0
    max_restarts: int = 0
    hang_timeout: float = 120.0


class Door:
    """Tells the ids of processes that have arrived, and waits for them."""

    def __init__(self, folder):
        self.path = folder / 'door'
        os.mkfifo(self.path)
        # For writing as well: without writers, reading would not wait but end.
        self._file = os.fdopen(os.open(self.path, os.O_RDWR), 'r')

    def await_pid(self):
        return int(self._file.readline())

    def close(self):
        self._file.close()


def knock(door, pid=None):
    with door.open('w') as file:
        file.write(f'{pid or os.getpid()}\n')


def leave(door=None, health=None):
    if door:
        knock(door)


def stay(door, health=None):
    """Ends cleanly when asked, never by itself."""
    names = queue.SimpleQueue()
    with StopSignals(notify=names.put):
        knock(door)
        names.get()


def write(path, content, health):
    path.write_bytes(content)


def stay_and_save(door, path, health):
    stay(door)
    path.write_text('saved')


def tell_who_is_gone(door, path, names, health):
    stay(door)
    lost = [name for name in names if health.is_gone(name)]
    path.write_text(' '.join(lost))


def hang(door, health=None):
    """Has not yet learned to end cleanly."""
    knock(door)
    threading.Event().wait()


def be_deaf(door, health):
    """Does not end when asked."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    health.advance()
    hang(door)


def stay_without_signals(door, taken, health):
    """Ends cleanly although no signal reaches Python, as a library may cause it."""
    names = queue.SimpleQueue()
    with StopSignals(notify=names.put):
        if taken == 'masked':
            # Threads that exist already have a mask of their own.
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        else:
            libc = ctypes.CDLL(None)
            libc.signal.argtypes = ctypes.c_int, ctypes.c_void_p
            libc.signal(signal.SIGTERM, ctypes.cast(libc.abs, ctypes.c_void_p))
        knock(door)
        names.get()


def fail(kind, message, health):
    raise kind(message)


def die(health):
    print('a last word', file=sys.stderr, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


def leave_program_behind(door, health):
    code = 'import threading; threading.Event().wait()'
    knock(door, subprocess.Popen([sys.executable, '-c', code]).pid)


def launch(folder, door):
    """A launcher whose role has a program running, to be killed."""
    with Supervisor(Settings(folder)) as supervisor:
        supervisor.start('hanging', hang, door)
        supervisor.wait()


if __name__ == '__main__':
    launch(*map(Path, sys.argv[1:]))
