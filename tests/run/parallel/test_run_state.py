"""The run state that actor and learner share."""

from embodied.run.parallel.run_state import RunState


def test_steps_of_before_do_not_count_as_played_since():
    run_state = RunState()
    run_state.steps = 100  # as of the last save
    for steps in (130, 134, 140):  # The 30 were played by an agent that died.
        run_state.advance(steps)
    assert (run_state.steps, run_state.played) == (140, 10)


def test_who_waits_for_the_actor_waits_until_it_has_told_everything():
    run_state = RunState()
    assert run_state.await_actor(0)  # There is none.
    with run_state.acting():
        assert not run_state.await_actor(0)
    assert run_state.await_actor(0)
