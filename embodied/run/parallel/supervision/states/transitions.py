"""Transitions: what a supervisor does about every event, as two tables.

A run is in a phase and each of its roles in a state. An event of a role is looked up in
ROLES, an event of the run in RUN. The first row that fits names the next state and the
actions; without such a row the event changes nothing. Nothing here knows processes,
threads or clocks: lifecycle.py applies the tables, ../supervisor.py raises the events,
../supervised_run.py performs the actions.
"""

import enum
from collections.abc import Mapping
from typing import NamedTuple

__all__ = [
    'LEAD_EVENTS',
    'ROLES',
    'RUN',
    'Action',
    'Event',
    'Kind',
    'Phase',
    'Row',
    'RunAction',
    'RunEvent',
    'RunRow',
    'State',
    'find',
    'find_run',
]


class Phase(enum.Flag):
    """What a run does, until its last role has ended."""

    ACTIVE = enum.auto()  # roles that end are started again
    ENDING = enum.auto()  # the lead has said that the run is over
    STOPPING = enum.auto()  # nothing is started again, and run.grace counts
    LATE = enum.auto()  # only enough of the grace is left for the writers


class State(enum.Flag):
    """What a role does."""

    STARTING = enum.auto()  # has a process, which has made no progress yet
    RUNNING = enum.auto()
    WAITING = enum.auto()  # for other roles
    SUSPENDED = enum.auto()  # stopped by a signal
    DISMISSED = enum.auto()  # killed because it cannot be interrupted
    LEFT = enum.auto()  # has ended cleanly, while the run is not known to be over
    RESTARTING = enum.auto()  # waits for its next process
    FAILED = enum.auto()
    DONE = enum.auto()


class Kind(enum.Flag):
    """What a role is to the others."""

    LEAD = enum.auto()  # decides when the run is over, and asks the others to end
    WRITER = enum.auto()  # has something to write to disk before it ends
    OTHER = enum.auto()
    INDEPENDENT = enum.auto()  # of a supervisor without a lead


class Event(enum.StrEnum):
    """What happens to a role."""

    # From its heartbeats
    BEGAN = 'began'  # the first progress of a process
    MOVED = 'moved'
    WAITED = 'waited'
    COMPILES = 'compiles'  # cannot be interrupted, and has something to save
    COMPILES_SAVED = 'compiles, saved'  # cannot be interrupted, and loses nothing
    # From the watch over its process
    PLACED = 'placed'  # on a machine, which took its time
    STOPPED = 'stopped'  # by SIGSTOP
    HUNG = 'hung'
    STILL_HUNG = 'still hung'
    # From the end of its process
    ENDED = 'ended cleanly'
    FAILED = 'failed'
    HOPELESS = 'failed for good'  # a restart is of no use
    # From the supervisor
    DUE = 'due'  # the deadline of its state has passed
    RECALLED = 'recalled'  # the lead, which had asked it to end, starts again
    CANCELED = 'canceled'  # the run stops


class Action(enum.Enum):
    """What the supervisor does with a role."""

    NOTE_PROGRESS = enum.auto()  # in the events of the run
    NOTE_PLACE = enum.auto()
    AWAIT_CONTINUE = enum.auto()  # gives a debugger some time to continue it
    CONTINUE = enum.auto()
    SHOW_STACKS = enum.auto()  # in its log
    KILL = enum.auto()
    KILL_HUNG = enum.auto()
    SAY_DISMISSED = enum.auto()
    AWAIT_OVER = enum.auto()  # gives the lead some time to say that the run is over
    PLAN_RESTART = enum.auto()  # raises HOPELESS if that is of no use
    LAUNCH = enum.auto()
    RECALL_OTHERS = enum.auto()
    KEEP_ERROR = enum.auto()  # for when the others have ended
    RAISE_ERROR = enum.auto()  # which ends the run


class Row(NamedTuple):
    """In this phase, for a role of this state and kind: what is next."""

    phase: Phase
    state: State
    kind: Kind
    next: State | None = None  # None: the same
    actions: tuple[Action, ...] = ()


ACTIVE, ENDING, STOPPING, LATE = Phase
LEAD, WRITER, OTHER, INDEPENDENT = Kind
(
    STARTING,
    RUNNING,
    WAITING,
    SUSPENDED,
    DISMISSED,
    LEFT,
    RESTARTING,
    FAILED,
    DONE,
) = State

ALWAYS = ACTIVE | ENDING | STOPPING | LATE
ALL = LEAD | WRITER | OTHER | INDEPENDENT
AWAKE = STARTING | RUNNING | WAITING
ALIVE = AWAKE | SUSPENDED
LAUNCH_ALL = (Action.LAUNCH, Action.RECALL_OTHERS)

# fmt: off
ROLES: Mapping[Event, tuple[Row, ...]] = {
    Event.BEGAN: (
        Row(ALWAYS, AWAKE,     ALL, RUNNING, (Action.NOTE_PROGRESS,)),
        Row(ALWAYS, SUSPENDED, ALL, None,    (Action.NOTE_PROGRESS,)),
    ),
    Event.MOVED:  (Row(ALWAYS, AWAKE, ALL, RUNNING),),
    Event.WAITED: (Row(ALWAYS, AWAKE, ALL, WAITING),),

    # A compiler cannot be interrupted. It is worth waiting for as long as the others
    # have the time to write, and only if the lead has something to save.
    Event.COMPILES_SAVED: (
        Row(STOPPING | LATE, ALIVE, LEAD, DISMISSED, (Action.KILL,)),
    ),
    Event.COMPILES: (
        Row(LATE, ALIVE, LEAD, DISMISSED, (Action.SAY_DISMISSED, Action.KILL)),
    ),

    Event.PLACED:     (Row(ALWAYS, ALIVE, ALL, None,      (Action.NOTE_PLACE,)),),
    Event.STOPPED:    (Row(ALWAYS, ALIVE, ALL, SUSPENDED, (Action.AWAIT_CONTINUE,)),),
    Event.HUNG:       (Row(ALWAYS, ALIVE, ALL, None,      (Action.SHOW_STACKS,)),),
    Event.STILL_HUNG: (Row(ALWAYS, ALIVE, ALL, None,      (Action.KILL_HUNG,)),),

    # A role that ends by itself has to know that the run is over.
    Event.ENDED: (
        Row(ALWAYS,                   DISMISSED, ALL,                DONE),
        Row(ENDING | STOPPING | LATE, ALIVE,     ALL,                DONE),
        Row(ACTIVE,                   ALIVE,     LEAD | INDEPENDENT, DONE),
        Row(ACTIVE,                   ALIVE,     ALL, LEFT, (Action.AWAIT_OVER,)),
    ),
    Event.FAILED: (
        Row(ALWAYS,          DISMISSED, ALL, DONE),
        Row(ACTIVE | ENDING, ALIVE,     ALL, RESTARTING, (Action.PLAN_RESTART,)),
        Row(STOPPING | LATE, ALIVE,     ALL, FAILED,     (Action.KEEP_ERROR,)),
    ),
    Event.HOPELESS: (
        Row(ACTIVE | ENDING, RESTARTING, ALL, FAILED, (Action.RAISE_ERROR,)),
    ),

    # At the end of a run, the lead still has to save and needs the writers.
    Event.DUE: (
        Row(ALWAYS, SUSPENDED,  ALL,           WAITING,    (Action.CONTINUE,)),
        Row(ACTIVE, LEFT,       ALL,           RESTARTING, (Action.PLAN_RESTART,)),
        Row(ENDING, LEFT,       ALL,           DONE),
        Row(ACTIVE, RESTARTING, LEAD,          STARTING,   LAUNCH_ALL),
        Row(ACTIVE, RESTARTING, ALL,           STARTING,   (Action.LAUNCH,)),
        Row(ENDING, RESTARTING, LEAD | WRITER, STARTING,   (Action.LAUNCH,)),
        Row(ENDING, RESTARTING, ALL,           DONE),
    ),
    Event.RECALLED: (Row(ACTIVE, DONE, ALL, STARTING, (Action.LAUNCH,)),),
    Event.CANCELED: (Row(STOPPING, LEFT | RESTARTING, ALL, DONE),),
}
# fmt: on


class RunEvent(enum.Enum):
    """What happens to the run."""

    OVER = enum.auto()  # the lead says so
    LEAD_FAILED = enum.auto()  # and is started again
    LEAD_ENDED = enum.auto()  # for good
    STOP = enum.auto()  # a signal, or the engine that the roles run on
    GRACE_SHORT = enum.auto()  # just enough of it is left for the writers
    GRACE_OVER = enum.auto()
    TICK = enum.auto()  # every few seconds


class RunAction(enum.Enum):
    """What the supervisor does with all roles."""

    NOTE_STOP = enum.auto()
    START_GRACE = enum.auto()
    CANCEL_RESTARTS = enum.auto()  # raises CANCELED for each role
    ASK_LEAD = enum.auto()  # to end; without a lead, all
    ASK_ALL = enum.auto()  # to end
    SHOW_STACKS = enum.auto()  # of those that have not ended
    DISMISS_COMPILING = enum.auto()  # raises COMPILES or COMPILES_SAVED for the lead
    RAISE_LATE = enum.auto()
    LOOK_AROUND = enum.auto()  # for hung roles: raises HUNG or STILL_HUNG


class RunRow(NamedTuple):
    """In this phase: what is next."""

    phase: Phase
    next: Phase | None = None  # None: the same
    actions: tuple[RunAction, ...] = ()


STOP = (RunAction.START_GRACE, RunAction.CANCEL_RESTARTS)
NOTE_STOP, DISMISS = RunAction.NOTE_STOP, RunAction.DISMISS_COMPILING
ASK_LEAD, ASK_ALL = RunAction.ASK_LEAD, RunAction.ASK_ALL

# fmt: off
RUN: Mapping[RunEvent, tuple[RunRow, ...]] = {
    RunEvent.OVER:        (RunRow(ACTIVE, ENDING),),
    RunEvent.LEAD_FAILED: (RunRow(ENDING, ACTIVE),),
    # It has asked the others to end, unless it was stopped before it could.
    RunEvent.LEAD_ENDED: (
        RunRow(ACTIVE | ENDING, STOPPING, (*STOP, ASK_ALL)),
        RunRow(STOPPING | LATE, None,     (ASK_ALL,)),
    ),
    RunEvent.STOP: (
        RunRow(ACTIVE | ENDING, STOPPING, (NOTE_STOP, *STOP, ASK_LEAD, DISMISS)),
        RunRow(STOPPING | LATE, None,     (NOTE_STOP, ASK_LEAD, DISMISS)),
    ),
    RunEvent.GRACE_SHORT: (RunRow(STOPPING, LATE, (DISMISS, RunAction.SHOW_STACKS)),),
    RunEvent.GRACE_OVER:  (RunRow(LATE, None, (RunAction.RAISE_LATE,)),),
    RunEvent.TICK: (RunRow(ALWAYS, None, (RunAction.LOOK_AROUND,)),),
}
# fmt: on

# What the next state of the lead means for the run.
LEAD_EVENTS: Mapping[State, RunEvent] = {
    RESTARTING: RunEvent.LEAD_FAILED,
    DONE: RunEvent.LEAD_ENDED,
    FAILED: RunEvent.LEAD_ENDED,
}


def find(event: Event, phase: Phase, state: State, kind: Kind) -> Row | None:
    """What is next for a role."""
    rows = ROLES[event]
    fits = (x for x in rows if phase in x.phase and state in x.state and kind in x.kind)
    return next(fits, None)


def find_run(event: RunEvent, phase: Phase) -> RunRow | None:
    """What is next for the run."""
    return next((row for row in RUN[event] if phase in row.phase), None)
