"""A run on several hosts, with a network in between that is slow and breaks."""

import contextlib
import shutil

import fault_parts
import hosts as hosts_lib
import pytest
from faults import FaultyRun, check_folder, check_ratio
from hosts import CLOCK_AHEAD, Hosts

from embodied.transport import keys

reason = hosts_lib.missing()
pytestmark = [
    pytest.mark.skipif(bool(reason), reason=reason or 'possible'),
    pytest.mark.usefixtures('nothing_is_left'),
]

ACTOR, REPLAY, LOGGER = 7000, 7001, 7002  # ports
RATIO = 64.0
DELAY = 0.02  # seconds, in each direction
RATE = 4e6  # bytes per second and direction
SECONDS = 90  # for a job to end


def copy_keys(logdir, folder):
    """What a host that only runs environments is given: the client's half."""
    (folder / 'keys').mkdir(parents=True)
    shutil.copy(logdir / 'keys' / keys.CLIENT_FILE, folder / 'keys')


@contextlib.contextmanager
def run_apart(tmp_path, *flags):
    """The run, the network to its actor, and the job with its environments."""
    logdir, elsewhere = tmp_path / 'run', tmp_path / 'elsewhere'
    keys.create(logdir / 'keys')
    copy_keys(logdir, elsewhere)
    with Hosts('agent', 'envs') as hosts:
        network = hosts.proxy(('envs', 'agent', ACTOR))
        here = ['--actor_addr', f'{hosts.address("agent")}:{ACTOR}']
        here += ['--remote_envs', 'True', *flags]
        there = [fault_parts.__file__, elsewhere, '--role', 'envs', *flags]
        there += ['--actor_addr', f'{hosts.gate("envs")}:{ACTOR}']
        # Hosts have clocks of their own: nothing may compare them.
        envs = hosts.start('envs', there, clock=CLOCK_AHEAD)
        with FaultyRun(logdir, *here, prefix=hosts.prefix('agent')) as run:
            yield run, network, envs


def finish(run, network, envs):
    """Ends the run, over a network that delivers its last words."""
    assert network.tell('cut', 0)['cuts'] > 0
    run.interrupt()
    assert run.wait() == 0, run.log
    assert envs.wait(SECONDS) == 0
    found = check_folder(run.logdir)
    check_ratio(run.logdir, RATIO)
    return found


def test_environments_on_another_host_lose_nothing_when_connections_break(tmp_path):
    with run_apart(tmp_path, '--envs', '8', '--envs_per_worker', '4') as parts:
        run, network, _ = parts
        network.tell('delay', DELAY)
        network.tell('rate', RATE)
        run.await_steps(500)
        network.tell('cut', 0.3)
        run.await_steps(700)
        found = finish(*parts)
    # Connections broke, but no environment had to begin anew.
    assert found.streams == 8
