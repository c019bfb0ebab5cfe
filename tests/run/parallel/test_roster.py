"""Sessions come and go; each row knows its stream, or that it has none."""

import numpy as np
import pytest

from embodied.core.errors import ConfigError
from embodied.run.parallel.roster import Roster

ONE, TWO = bytes(15) + b'1', bytes(15) + b'2'


def admit(roster, *rows, repeated=False):
    """Rows are (envid, session, is_first)."""
    envids = np.array([row[0] for row in rows], np.int32)
    sessions = np.array([np.frombuffer(row[1], np.uint8) for row in rows])
    is_first = np.array([row[2] for row in rows])
    return roster.admit(envids, sessions, is_first, repeated)


def test_a_session_begins_with_a_first_step():
    roster = Roster(4)
    rows = admit(roster, (2, ONE, False), (0, ONE, True))
    assert rows.admitted.tolist() == [False, True]
    assert rows.slots.tolist() == [0, 1]
    assert rows.renewed.tolist() == [1]
    rows = admit(roster, (2, ONE, True), (0, ONE, False))
    assert rows.admitted.all()
    assert rows.slots.tolist() == [3, 1]
    assert rows.renewed.tolist() == [3]
    assert admit(roster, (2, ONE, True), (0, ONE, True)).renewed.tolist() == []
    assert len(roster) == 2


def test_streams_are_named_by_environment_and_session():
    pairs = [(e, s) for e in range(3) for s in (ONE, TWO)]
    names = [admit(Roster(3), (e, s, True)).streams[0] for e, s in pairs]
    again = [admit(Roster(3), (e, s, True)).streams[0] for e, s in pairs]
    assert names == again
    assert len(set(names)) == len(pairs)
    assert min(names) >= 0


def test_a_new_session_replaces_the_old_one_for_good():
    roster = Roster(2)
    admit(roster, (1, ONE, True))
    rows = admit(roster, (1, TWO, True))
    assert rows.admitted.all()
    assert rows.renewed.tolist() == [2]
    for first in (False, True):
        rows = admit(roster, (1, ONE, first), (1, TWO, False))
        assert rows.admitted.tolist() == [False, True]
        assert rows.replaced.tolist() == [True, False]


def test_the_last_of_two_sessions_in_one_batch_stays():
    rows = admit(Roster(1), (0, ONE, True), (0, TWO, True))
    assert rows.admitted.tolist() == [False, True]
    assert rows.replaced.tolist() == [True, False]


def test_steps_that_were_sent_before_do_not_begin_a_session():
    roster = Roster(2)
    admit(roster, (0, ONE, True))
    rows = admit(roster, (0, ONE, False), (1, ONE, True), repeated=True)
    assert rows.admitted.tolist() == [True, False]
    assert not rows.replaced.any()


def test_a_worker_that_leaves_takes_its_environments_along():
    roster = Roster(3)
    admit(roster, (0, ONE, True), (1, TWO, True), (2, ONE, True))
    roster.leave(np.frombuffer(ONE, np.uint8))
    assert len(roster) == 1
    rows = admit(roster, (0, ONE, False), (1, TWO, False))
    assert rows.admitted.tolist() == [False, True]


@pytest.mark.parametrize('envid', [-1, 3])
def test_environments_that_the_run_does_not_have_are_refused(envid):
    with pytest.raises(ConfigError, match='numbers below 3'):
        admit(Roster(3), (envid, ONE, True))
