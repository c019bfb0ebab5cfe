"""Roles that fail in some of their lives, for tests of what looks after them.

`folder` holds what they have to say: a line in `lives` for each process, and files.
"""

import os
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import asked_roles

from embodied.run.parallel.supervision import supervised_run
from embodied.run.parallel.supervision.health import COMPILING
from embodied.run.parallel.supervision.run_records import RunRecords
from embodied.run.parallel.supervision.supervisor import Supervisor


def begin_life(folder):
    """The number of this life, from 1."""
    with (folder / 'lives').open('a') as file:
        file.write(f'{os.getpid()}\n')
    return len((folder / 'lives').read_text().split())


def count_lives(folder):
    return len((folder / 'lives').read_text().split())


def die_until(folder, life, progress, health):
    """Is killed in each life before that one, with or without progress before."""
    if begin_life(folder) < life:
        if progress:
            make_progress(health)
        os.kill(os.getpid(), signal.SIGKILL)


def make_progress(health):
    """So that the supervisor hears of it before anything else happens."""
    health.advance()
    threading.Event().wait(0.3)


def fail_always(folder, error, health):
    begin_life(folder)
    print('about to fail', file=sys.stderr)
    raise error


def fail_then_stay(folder, door, health):
    """In the first life it leaves without having been asked."""
    if begin_life(folder) > 1:
        asked_roles.stay(door)


def lead_that_dies_once(folder, door, ended, health):
    """Says that the run is over, dies, and in its second life is really at the end."""
    if begin_life(folder) == 1:
        health.ending()
        ended.read_text()  # blocks until the other role has left
        os.kill(os.getpid(), signal.SIGKILL)
    asked_roles.knock(door)
    ended.read_text()


def leave_and_tell(ended, health):
    ended.write_text('gone')


def compile_for_ever(door, unsaved, health):
    """Cannot be interrupted."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    health.has_saved(not unsaved)
    with health.busy(COMPILING):
        make_progress(health)
        asked_roles.knock(door)
        threading.Event().wait()


def hang_once(folder, health):
    """Deadlocks in its first life, in the middle of something."""
    if begin_life(folder) == 1:
        with health.busy():
            threading.Event().wait()


def hang_partly_once(folder, health):
    """One thread deadlocks in the first life, while the main thread works on."""
    if begin_life(folder) > 1:
        return

    def hang_alone():
        with health.busy(alone=True):
            threading.Event().wait()

    threading.Thread(target=hang_alone, daemon=True).start()
    while True:
        with health.busy(alone=True):
            health.advance()
            threading.Event().wait(0.1)


def take_long(seconds, health):
    """Does nothing, but says why; waits for others; is really busy."""
    with health.busy(COMPILING):
        health.advance()
        threading.Event().wait(seconds)
    threading.Event().wait(seconds)
    with health.busy(alone=True):
        begin = time.monotonic()
        while time.monotonic() < begin + seconds:
            pass


def stop_once(folder, health):
    if begin_life(folder) == 1:
        os.kill(os.getpid(), signal.SIGSTOP)


def start_program(door, session, health):
    """With a program that has left the process group, and maybe is stopped itself."""
    code = 'import threading; threading.Event().wait()'
    program = subprocess.Popen([sys.executable, '-c', code], start_new_session=session)
    asked_roles.knock(door, program.pid)
    if session:
        os.kill(os.getpid(), signal.SIGSTOP)
    threading.Event().wait()


def end_slowly(door, ended, health):
    asked_roles.stay(door)
    asked_roles.knock(door)
    threading.Event().wait(1.0)
    ended.write_text('saved')


def fail_when_asked(door, health):
    asked_roles.stay(door)
    raise ValueError('could not close')


def launch(folder, door, kind):
    """Runs a supervisor in a process of its own, to be killed or suspended."""
    settings = asked_roles.Settings(folder, grace=3.0)
    supervised_run.SUSPENDED = 1.0
    with Supervisor(settings, RunRecords(folder, epoch=1)) as supervisor:
        match kind:
            case 'program':
                supervisor.start('grouped', start_program, door, False)
                supervisor.start('apart', start_program, door, True)
            case 'full':
                count = len(os.listdir('/proc/self/fd'))
                resource.setrlimit(resource.RLIMIT_NOFILE, (count, count))
                supervisor.start('role', asked_roles.leave)
            case 'slow':
                supervisor.start('slow', end_slowly, door, folder / 'ended')
        supervisor.wait()


if __name__ == '__main__':
    launch(*map(Path, sys.argv[1:3]), sys.argv[3])
