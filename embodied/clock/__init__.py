"""Clocks: say when something periodic is due, such as logging, reports and saves.

A `GlobalClock` gives one answer to all replicas of a run. They agree on it by votes
that travel with the updates of an agent that carries them, or else through a server:

    clock.setup(is_server=replica == 0, replica=replica, replicas=3,
                port=7200, addr='host-a:7200')
    should_save = embodied.GlobalClock(60)
"""

from .agreement import Agreement
from .global_clock import GlobalClock
from .local_clock import LocalClock
from .replica_clocks import current, setup

__all__ = ['Agreement', 'GlobalClock', 'LocalClock', 'current', 'setup']
