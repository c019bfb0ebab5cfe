"""Roles that print, for tests of where that goes."""

import faulthandler
import os
import signal
import subprocess
import sys
from pathlib import Path

import asked_roles
from supervised_roles import begin_life

LINE = 'x' * (1 << 20)


def print_much(kind, count, health=None):
    """Prints lines of a megabyte, as fast as it can."""
    for _ in range(count >> 20):
        match kind:
            case 'python':
                print(LINE)
            case 'stderr':
                print(LINE, file=sys.stderr)
            case 'descriptor':
                os.write(1, LINE.encode())
            case 'program':
                code = "print('x' * (1 << 20))"
                subprocess.run([sys.executable, '-S', '-c', code], check=True)
    sys.stdout.flush()
    os.write(2, b'the end\n')


def print_and_die(kind, health):
    for number in range(200_000):
        print(number, file=sys.stderr)
    os.write(2, b'a word of C\n')
    match kind:
        case 'abort':
            faulthandler.enable()
            os.abort()
        case 'kill':
            os.kill(os.getpid(), signal.SIGKILL)
        case 'raise':
            raise ValueError('burnt')
        case 'exit':
            os._exit(3)


def die_once(folder, health):
    life = begin_life(folder)
    os.write(2, f'life {life}\n'.encode())
    if life == 1:
        os.kill(os.getpid(), signal.SIGKILL)


def print_both(health):
    print('for the user')
    print('for the log', file=sys.stderr)


def print_when_told(door, folder, health):
    os.mkfifo(folder / 'go')
    asked_roles.knock(door)
    (folder / 'go').read_text()
    print_much('stderr', 1 << 21)


def launch(folder, door):
    with asked_roles.Supervisor(asked_roles.Settings(folder)) as supervisor:
        supervisor.start('env0', print_when_told, door, folder)
        supervisor.wait()


if __name__ == '__main__':
    launch(*map(Path, sys.argv[1:]))
