"""A learner between real roles, with a test in place of the actor."""

import contextlib
import functools
import threading

import data_parts as parts
import elements
from data_parts import DEADLINE, Worker, make_rows

from embodied.core.checkpoint import load_part
from embodied.run.parallel import parallel_learner, parallel_logger, parallel_replay
from embodied.run.parallel.context import RoleContext
from embodied.run.parallel.run_state import RunState
from embodied.transport import Disconnected

__all__ = ['Run']


class Run:
    """All roles in threads; the test is the actor."""

    def __init__(self, logdir, agent=None, replay=None, stream=None, **changes):
        self.args = parts.make_args(logdir, **changes)
        self.logdir = logdir
        self.agent = agent or parts.Agent()
        self.entries = []
        make = replay or functools.partial(parts.make_replay, logdir / 'replay')
        stream = stream or parts.make_stream
        logger = lambda: elements.Logger(elements.Counter(), [self.entries.extend])
        self.roles = [
            Worker(parallel_replay, make, parts.make_replay, stream, self.args),
            Worker(parallel_logger, logger, self.args),
        ]
        self.barrier = threading.Barrier(2)
        self.run_state = RunState.of(self.barrier)
        self.learner = Worker(parallel_learner, self.agent, self.barrier, self.args)
        connect = RoleContext.of(self.args).make_client
        self.replay = connect(self.args.replay_addr, 'actor')
        self.evaluate = connect(self.args.replay_addr, 'evaluation')
        self.logger = connect(self.args.logger_addr, 'test')

    def act(self, begin=0, end=10**9):
        """Adds rows until the run is over; like an actor it advances the run state."""
        for serial in range(begin, end):
            answer = self.replay.call('add_batch', *make_rows(4, serial)).result(
                DEADLINE
            )
            self.run_state.advance(int(answer['steps']))
            if answer['stop']:
                break

    def join(self, acting=None):
        for role in (self.learner, *self.roles):
            role.join()
        self.close()
        if acting:
            with contextlib.suppress(Disconnected):  # the last rows find no server
                acting.join()

    def end_roles(self):
        """In place of a learner that has failed."""
        told = self.replay.call('finish'), self.logger.call('finish', 0)
        for role in self.roles:
            role.join()
        del told  # the answers may be lost when the servers go
        self.close()

    def close(self):
        for client in (self.replay, self.evaluate, self.logger):
            client.close()

    def saved(self):
        return load_part(self.logdir / 'ckpt' / 'agent', 'learner')

    def named(self):
        """Values by name, in the order in which they were written."""
        named = {}
        for _, name, value in self.entries:
            named.setdefault(name, []).append(value)
        return named
