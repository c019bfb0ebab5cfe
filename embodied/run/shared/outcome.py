"""Outcome of a run: the state that it ends in, and why."""

from typing import NamedTuple

from ...processes.signals import Terminated

__all__ = [
    'DURATION',
    'FAILED',
    'FINISHED',
    'KILLED',
    'OVER',
    'STEPS',
    'STOPPED',
    'UPDATES',
    'Outcome',
]

# Limits, as reasons.
STEPS, UPDATES, DURATION = 'run.steps', 'run.updates', 'run.duration'

FINISHED = 'finished'  # run.steps, with all updates that it earns, or run.updates
STOPPED = 'stopped'  # by run.duration, a signal or on_log, with a last save
KILLED = 'killed'  # by a second signal, without a last save
FAILED = 'failed'
DONE = 'done'  # what version 0.1.0 wrote for FINISHED and STOPPED
OVER = (FINISHED, STOPPED, KILLED, FAILED, DONE)


class Outcome(NamedTuple):
    state: str
    reason: str  # a limit, the name of a signal, on_log, or the error in one line

    @classmethod
    def of(cls, reason: str) -> 'Outcome':
        """Outcome of a clean end; without a reason, there was nothing left to do."""
        return cls(FINISHED if reason in (STEPS, UPDATES, '') else STOPPED, reason)

    @classmethod
    def after(cls, error: BaseException) -> 'Outcome':
        """Outcome of a run that ended by an exception."""
        if isinstance(error, Terminated):
            return cls(KILLED, error.signal)
        if isinstance(error, KeyboardInterrupt):
            return cls(KILLED, 'SIGINT')
        first, *_ = str(error).splitlines() or ['']
        return cls(FAILED, f'{type(error).__name__}: {first}')
