"""The session that actor and learner share."""

from embodied.run.parallel.run_state import RunState


def test_steps_of_before_do_not_count_as_played_since():
    session = RunState()
    session.steps = 100  # as of the last save
    for steps in (130, 134, 140):  # The 30 were played by an agent that died.
        session.advance(steps)
    assert (session.steps, session.played) == (140, 10)


def test_who_waits_for_the_actor_waits_until_it_has_told_everything():
    session = RunState()
    assert session.await_actor(0)  # There is none.
    with session.acting():
        assert not session.await_actor(0)
    assert session.await_actor(0)
