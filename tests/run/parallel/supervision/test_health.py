"""Health: what a role says about its long activities while they last."""

import pytest

from embodied.run.parallel.supervision.health import COMPILING, SAVING, Health
from embodied.run.parallel.supervision.role import Role
from embodied.run.shared import activities


@pytest.fixture
def health(monkeypatch):
    monkeypatch.setattr(activities, 'LONG_SECONDS', 0.0)
    return Health()


def test_programs_are_named_while_they_are_compiled(health):
    health.compiling = lambda: [('train', 34.2), ('report', 3.0)]
    heartbeat = health.heartbeat()  # in the background, while the role waits
    assert heartbeat.doing == 'compiling report, train for 34 s'
    assert not heartbeat.activity
    with health.busy(COMPILING):
        assert health.heartbeat().doing == 'compiling report, train for 34 s'
    with health.busy(SAVING):
        assert health.heartbeat().doing == 'saving for 0 s'


def test_an_agent_that_names_no_programs_still_compiles(health):
    with health.busy(COMPILING):
        assert health.heartbeat().doing == 'compiling for 0 s'


def test_what_has_just_begun_is_not_mentioned():
    health = Health()
    with health.busy(SAVING):
        heartbeat = health.heartbeat()
        assert (heartbeat.activity, heartbeat.doing) == (SAVING, '')


def test_the_status_of_a_role_says_what_it_does(health):
    role = Role('agent', lambda number: None, max_restarts=0)
    with health.busy(COMPILING):
        role.hear(health.heartbeat())
    described = role.describe()
    assert described['activity'] == COMPILING
    assert described['doing'] == 'compiling for 0 s'


def test_the_status_of_an_agent_says_what_it_trains_on(health):
    role = Role('agent', lambda number: None, max_restarts=0)
    health.hardware = 'the CPU (2 cores) in float32'
    role.hear(health.heartbeat())
    assert role.describe()['hardware'] == 'the CPU (2 cores) in float32'
