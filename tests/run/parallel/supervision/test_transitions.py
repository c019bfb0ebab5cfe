"""Tables of the supervisor: one example per row, and what holds for all of them."""

import dataclasses
import itertools

import pytest

from embodied.run.parallel.supervision.states import transitions
from embodied.run.parallel.supervision.states.lifecycle import Lifecycle
from embodied.run.parallel.supervision.states.transitions import (
    Action,
    Event,
    Kind,
    Phase,
    RunAction,
    RunEvent,
    State,
)

ACTIVE, ENDING, STOPPING, LATE = Phase
LEAD, WRITER, OTHER, INDEPENDENT = Kind
STARTING, RUNNING, WAITING, SUSPENDED, DISMISSED, LEFT, RESTARTING, FAILED, DONE = State
OVER = DONE | FAILED
PROCESS = STARTING | RUNNING | WAITING | SUSPENDED | DISMISSED

DISMISS = [Action.SAY_DISMISSED, Action.KILL]
LAUNCH_ALL = [Action.LAUNCH, Action.RECALL_OTHERS]

# event, phase, state, kind -> next state, actions
EXAMPLES = [
    (Event.BEGAN, ACTIVE, STARTING, LEAD, RUNNING, [Action.NOTE_PROGRESS]),
    (Event.BEGAN, ACTIVE, SUSPENDED, OTHER, SUSPENDED, [Action.NOTE_PROGRESS]),
    (Event.MOVED, ENDING, WAITING, WRITER, RUNNING, []),
    (Event.WAITED, ACTIVE, RUNNING, OTHER, WAITING, []),
    (Event.COMPILES_SAVED, STOPPING, RUNNING, LEAD, DISMISSED, [Action.KILL]),
    (Event.COMPILES, LATE, RUNNING, LEAD, DISMISSED, DISMISS),
    (Event.PLACED, ACTIVE, STARTING, OTHER, STARTING, [Action.NOTE_PLACE]),
    (Event.STOPPED, ACTIVE, RUNNING, OTHER, SUSPENDED, [Action.AWAIT_CONTINUE]),
    (Event.HUNG, ACTIVE, RUNNING, OTHER, RUNNING, [Action.SHOW_STACKS]),
    (Event.STILL_HUNG, ACTIVE, RUNNING, OTHER, RUNNING, [Action.KILL_HUNG]),
    (Event.ENDED, STOPPING, DISMISSED, LEAD, DONE, []),
    (Event.ENDED, ENDING, RUNNING, OTHER, DONE, []),
    (Event.ENDED, ACTIVE, RUNNING, LEAD, DONE, []),
    (Event.ENDED, ACTIVE, RUNNING, OTHER, LEFT, [Action.AWAIT_OVER]),
    (Event.FAILED, LATE, DISMISSED, LEAD, DONE, []),
    (Event.FAILED, ENDING, WAITING, WRITER, RESTARTING, [Action.PLAN_RESTART]),
    (Event.FAILED, STOPPING, RUNNING, OTHER, FAILED, [Action.KEEP_ERROR]),
    (Event.HOPELESS, ACTIVE, RESTARTING, LEAD, FAILED, [Action.RAISE_ERROR]),
    (Event.DUE, ACTIVE, SUSPENDED, OTHER, WAITING, [Action.CONTINUE]),
    (Event.DUE, ACTIVE, LEFT, OTHER, RESTARTING, [Action.PLAN_RESTART]),
    (Event.DUE, ENDING, LEFT, OTHER, DONE, []),
    (Event.DUE, ACTIVE, RESTARTING, LEAD, STARTING, LAUNCH_ALL),
    (Event.DUE, ACTIVE, RESTARTING, INDEPENDENT, STARTING, [Action.LAUNCH]),
    (Event.DUE, ENDING, RESTARTING, WRITER, STARTING, [Action.LAUNCH]),
    (Event.DUE, ENDING, RESTARTING, OTHER, DONE, []),
    (Event.RECALLED, ACTIVE, DONE, OTHER, STARTING, [Action.LAUNCH]),
    (Event.CANCELED, STOPPING, RESTARTING, OTHER, DONE, []),
]

# What changes nothing.
UNHEARD = [
    (Event.COMPILES_SAVED, ACTIVE, RUNNING, LEAD),  # The run goes on.
    (Event.COMPILES_SAVED, LATE, RUNNING, WRITER),  # Only the agent compiles.
    (Event.COMPILES, STOPPING, RUNNING, LEAD),  # It may still save in time.
    (Event.MOVED, ACTIVE, SUSPENDED, OTHER),  # The heartbeat was late.
    (Event.MOVED, STOPPING, DISMISSED, LEAD),
    (Event.STOPPED, LATE, DISMISSED, LEAD),
    (Event.RECALLED, ACTIVE, RUNNING, OTHER),
    (Event.RECALLED, ACTIVE, FAILED, OTHER),
]


@dataclasses.dataclass(eq=False)
class Part:
    """A role without a process."""

    state: State = STARTING
    writes: bool = False


class Machine(Lifecycle):
    """Keeps the actions instead of performing them."""

    def __init__(self):
        self.now = 0.0
        super().__init__(longest_gap=7.0, clock=lambda: self.now)
        self.performed = []

    def perform(self, action, role):
        self.performed.append(action)

    def perform_on_run(self, action):
        self.performed.append(action)


@pytest.mark.parametrize(
    ('event', 'phase', 'state', 'kind', 'following', 'actions'), EXAMPLES
)
def test_an_event_leads_to_a_state_and_actions(
    event, phase, state, kind, following, actions
):
    row = transitions.find(event, phase, state, kind)
    assert (row.next or state, list(row.actions)) == (following, actions)


def test_every_row_has_an_example():
    shown = [transitions.find(*example[:4]) for example in EXAMPLES]
    for event, rows in transitions.ROLES.items():
        for row in rows:
            assert any(row is x for x in shown), (event, row)


@pytest.mark.parametrize(('event', 'phase', 'state', 'kind'), UNHEARD)
def test_other_events_change_nothing(event, phase, state, kind):
    assert transitions.find(event, phase, state, kind) is None


def everything():
    for event, phase, state, kind in itertools.product(Event, Phase, State, Kind):
        if row := transitions.find(event, phase, state, kind):
            yield event, phase, state, kind, row


def test_a_stopping_run_starts_nothing():
    for event, phase, state, _, row in everything():
        if phase in STOPPING | LATE:
            assert Action.LAUNCH not in row.actions, event
            assert row.next not in (STARTING, LEFT, RESTARTING), (event, state)


def test_the_end_of_a_process_is_never_missed():
    for phase, kind, event in itertools.product(
        Phase, Kind, (Event.ENDED, Event.FAILED)
    ):
        for state in PROCESS:
            row = transitions.find(event, phase, state, kind)
            assert row and row.next in OVER | LEFT | RESTARTING, (phase, state, kind)


def test_a_role_without_a_process_waits_for_a_deadline_or_is_over():
    waiting = {LEFT, RESTARTING}
    for event, _, state, _, row in everything():
        if row.next in waiting:
            assert state in waiting or state in PROCESS, event
            assert {Action.AWAIT_OVER, Action.PLAN_RESTART} & set(row.actions), event
    for phase, state, kind in itertools.product((ACTIVE, ENDING), waiting, Kind):
        assert transitions.find(Event.DUE, phase, state, kind), (phase, state, kind)


def test_only_a_recall_brings_back_a_role_that_is_over():
    for event, _, state, _, _ in everything():
        assert state not in OVER or event is Event.RECALLED


# The run


@pytest.mark.parametrize(
    ('event', 'phase', 'following', 'action'),
    [
        (RunEvent.OVER, ACTIVE, ENDING, None),
        (RunEvent.LEAD_FAILED, ENDING, ACTIVE, None),
        (RunEvent.LEAD_ENDED, ENDING, STOPPING, RunAction.ASK_ALL),
        (RunEvent.LEAD_ENDED, LATE, LATE, RunAction.ASK_ALL),
        (RunEvent.STOP, ACTIVE, STOPPING, RunAction.ASK_LEAD),
        (RunEvent.STOP, STOPPING, STOPPING, RunAction.ASK_LEAD),
        (RunEvent.GRACE_SHORT, STOPPING, LATE, RunAction.SHOW_STACKS),
        (RunEvent.GRACE_OVER, LATE, LATE, RunAction.RAISE_LATE),
        (RunEvent.TICK, ENDING, ENDING, RunAction.LOOK_AROUND),
    ],
)
def test_an_event_of_the_run_leads_to_a_phase(event, phase, following, action):
    row = transitions.find_run(event, phase)
    assert (row.next or phase) == following
    assert action is None or action in row.actions


@pytest.mark.parametrize(
    ('event', 'phase'),
    [
        (RunEvent.OVER, STOPPING),
        (RunEvent.LEAD_FAILED, STOPPING),
        (RunEvent.GRACE_OVER, ACTIVE),
    ],
)
def test_other_events_of_the_run_change_nothing(event, phase):
    assert transitions.find_run(event, phase) is None


def test_the_grace_starts_once_whatever_stops_the_run():
    for event, phase in itertools.product(RunEvent, Phase):
        row = transitions.find_run(event, phase)
        begins = row is not None and RunAction.START_GRACE in row.actions
        enters = row is not None and row.next is STOPPING
        assert begins == enters == (begins and phase in ACTIVE | ENDING)


# Both together


def test_a_lead_that_fails_at_the_end_makes_the_run_go_on():
    run, lead, other = Machine(), Part(RUNNING), Part(RUNNING)
    run.add(lead, lead=True)
    run.add(other)
    run.advance_run(RunEvent.OVER)
    run.advance(other, Event.ENDED)
    assert (run.phase, other.state) == (ENDING, DONE)
    run.advance(lead, Event.FAILED)
    assert (run.phase, lead.state) == (ACTIVE, RESTARTING)
    run.set_deadline(lead, 2.0)
    run.advance_due()
    assert lead.state is RESTARTING
    run.now = 2.0
    run.advance_due()
    assert lead.state is STARTING
    assert run.performed[-1] is Action.RECALL_OTHERS


def test_the_run_is_over_with_its_last_role():
    run, lead, writer = Machine(), Part(RUNNING), Part(RUNNING, writes=True)
    run.add(lead, lead=True)
    run.add(writer)
    run.advance(lead, Event.ENDED)
    assert (run.phase, run.over) == (STOPPING, False)
    assert RunAction.ASK_ALL in run.performed
    run.advance(writer, Event.FAILED)
    assert (writer.state, run.over) == (FAILED, True)


def test_a_deadline_belongs_to_one_state():
    run, role = Machine(), Part(RUNNING)
    run.add(role)
    run.advance(role, Event.STOPPED)
    run.set_deadline(role, 5.0)
    run.advance(role, Event.FAILED)
    run.now = 6.0
    run.advance_due()
    assert role.state is RESTARTING
    assert Action.CONTINUE not in run.performed


def test_a_suspended_process_gets_the_time_back():
    run = Machine()
    run.add(Part(RUNNING))
    run.advance_run(RunEvent.STOP)
    run.set_deadline(RunEvent.GRACE_SHORT, 10.0)
    run.now = 5.0
    assert run.catch_up() == 0.0
    run.now = 105.0
    assert run.catch_up() == 100.0
    assert run.remaining() == 5.0
    run.now = 110.0
    run.advance_due()
    assert run.phase is LATE
