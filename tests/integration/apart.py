"""A run whose roles are on several hosts, with a network between that can be slow."""

import contextlib
import shutil
from typing import NamedTuple

import fault_parts
from faults import FaultyRun
from hosts import CLOCK_AHEAD, Hosts, Network

from embodied.transport import keys

ACTOR, REPLAY, LOGGER = 7000, 7001, 7002  # ports


class Apart(NamedTuple):
    """What there is to look at and to disturb."""

    run: FaultyRun
    network: Network  # between all of them
    jobs: tuple  # processes of those that are not started by the run itself


@contextlib.contextmanager
def run_apart(folder, *flags, replay=False):
    """The run with its environments, and maybe its replay, on hosts of their own.

    `flags` are options of all jobs.
    """
    logdir, elsewhere = folder / 'run', folder / 'elsewhere'
    keys.create(logdir / 'keys')
    _copy_keys(logdir, elsewhere)
    with Hosts('agent', 'envs', 'replay') as hosts:
        routes = [('envs', 'agent', ACTOR)]
        routes += [('agent', 'replay', REPLAY), ('replay', 'agent', LOGGER)]
        network = hosts.proxy(*routes)
        own, far = hosts.address, hosts.gate

        def job(host, folder, **places):
            command = [fault_parts.__file__, folder, '--role', host, *flags]
            # Hosts have clocks of their own: nothing may compare them.
            return hosts.start(host, command + _options(places), clock=CLOCK_AHEAD)

        places = {'actor': f'{own("agent")}:{ACTOR}'}
        jobs = [job('envs', elsewhere, actor=f'{far("envs")}:{ACTOR}')]
        if replay:
            places['replay'] = f'{far("agent")}:{REPLAY}'
            places['logger'] = f'{own("agent")}:{LOGGER}'
            there = {'logger': f'{far("replay")}:{LOGGER}'}
            jobs += [job('replay', logdir, replay=f'{own("replay")}:{REPLAY}', **there)]
        here = ['--remote_envs', 'True', '--remote_replay', str(replay), *flags]
        here += _options(places)
        with FaultyRun(logdir, *here, prefix=hosts.prefix('agent')) as run:
            yield Apart(run, network, tuple(jobs))


def _options(places):
    return [x for name, addr in places.items() for x in (f'--{name}_addr', addr)]


def _copy_keys(logdir, folder):
    """What a host that only runs environments is given: the client's half."""
    (folder / 'keys').mkdir(parents=True)
    shutil.copy(logdir / 'keys' / keys.CLIENT_FILE, folder / 'keys')
