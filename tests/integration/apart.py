"""A run whose environments are on another host, behind a network that can be slow."""

import contextlib
import shutil
from typing import NamedTuple

import fault_parts
from faults import FaultyRun
from hosts import CLOCK_AHEAD, Hosts, Network

from embodied.transport import keys

ACTOR = 7000  # port


class Apart(NamedTuple):
    """What there is to look at and to disturb."""

    run: FaultyRun
    network: Network  # between the environments and the actor
    envs: object  # process of the job with the environments


@contextlib.contextmanager
def run_apart(folder, *flags):
    """Starts it; `flags` are options of both jobs."""
    logdir, elsewhere = folder / 'run', folder / 'elsewhere'
    keys.create(logdir / 'keys')
    _copy_keys(logdir, elsewhere)
    with Hosts('agent', 'envs') as hosts:
        network = hosts.proxy(('envs', 'agent', ACTOR))
        here = ['--actor_addr', f'{hosts.address("agent")}:{ACTOR}']
        here += ['--remote_envs', 'True', *flags]
        there = [fault_parts.__file__, elsewhere, '--role', 'envs', *flags]
        there += ['--actor_addr', f'{hosts.gate("envs")}:{ACTOR}']
        # Hosts have clocks of their own: nothing may compare them.
        envs = hosts.start('envs', there, clock=CLOCK_AHEAD)
        with FaultyRun(logdir, *here, prefix=hosts.prefix('agent')) as run:
            yield Apart(run, network, envs)


def _copy_keys(logdir, folder):
    """What a host that only runs environments is given: the client's half."""
    (folder / 'keys').mkdir(parents=True)
    shutil.copy(logdir / 'keys' / keys.CLIENT_FILE, folder / 'keys')
