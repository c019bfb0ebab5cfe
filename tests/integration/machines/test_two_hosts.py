"""A run on several hosts, with a network in between that is slow and breaks."""

import hosts as hosts_lib
import pytest
from apart import run_apart
from faults import check_folder, check_ratio

reason = hosts_lib.missing()
pytestmark = [
    pytest.mark.skipif(bool(reason), reason=reason or 'possible'),
    pytest.mark.usefixtures('nothing_is_left'),
]

RATIO = 64.0
DELAY = 0.02  # seconds, in each direction
RATE = 4e6  # bytes per second and direction
SECONDS = 90  # for a job to end
FLAGS = ('--envs', '8', '--envs_per_worker', '4')


def finish(parts):
    """Ends the run, over a network that breaks no connection any more."""
    assert parts.network.command('cut', 0)['cuts'] > 0
    parts.run.await_steps(200)  # All are connected again.
    parts.run.interrupt()
    assert parts.run.wait() == 0, parts.run.log
    assert [job.wait(SECONDS) for job in parts.jobs] == [0] * len(parts.jobs)
    found = check_folder(parts.run.logdir)
    check_ratio(parts.run.logdir, RATIO)
    # Connections broke, but no environment had to start again.
    assert found.streams == 8


def disturb(parts, cuts):
    """cuts: seconds between two of them, on average."""
    parts.network.command('delay', DELAY)
    parts.network.command('rate', RATE)
    parts.run.await_steps(500)
    parts.network.command('cut', cuts)


def test_environments_on_another_host_lose_nothing_when_connections_break(tmp_path):
    with run_apart(tmp_path, *FLAGS) as parts:
        disturb(parts, cuts=0.3)
        parts.run.await_steps(400)
        finish(parts)


@pytest.mark.long
def test_the_same_for_minutes_while_roles_are_killed_as_well(tmp_path):
    with run_apart(tmp_path, *FLAGS) as parts:
        disturb(parts, cuts=0.5)
        for role in ('replay', 'logger') * 5:
            parts.run.await_running(role, since=parts.run.kill(role))
            parts.run.await_steps(500)
        finish(parts)


@pytest.mark.long
def test_a_replay_on_a_third_host_loses_nothing_either(tmp_path):
    with run_apart(tmp_path, *FLAGS, replay=True) as parts:
        disturb(parts, cuts=0.5)
        parts.run.await_steps(1000)
        finish(parts)
