"""Roles that end for some reason, for tests of what is told about it."""

import queue
import threading

import asked_roles

from embodied.processes import signals
from embodied.processes.signals import StopSignals

SAVE_SECONDS = 1.0


def reach(reason, health):
    """Comes to a limit of the run."""
    health.ending(reason)


def save_slowly(door, path, reason='', *, health):
    """When asked to end; if a reason is given, it had decided to end before."""
    names = queue.SimpleQueue()
    with StopSignals(notify=names.put):
        if reason:
            health.ending(reason)
        asked_roles.knock(door)
        names.get()
        threading.Event().wait(SAVE_SECONDS)
        path.write_text(f'saved after {health.asked}')


def save_for_ever(door, health):
    """Knocks, and knocks again when it begins to save and the next signal counts."""
    signals.REPEAT = 0.1
    names = queue.SimpleQueue()
    with StopSignals(notify=names.put):
        asked_roles.knock(door)
        names.get()
        threading.Event().wait(0.3)
        asked_roles.knock(door)
        threading.Event().wait()
