"""Environments join a running actor and leave it, and nothing of them stays."""

import gc
import threading
import tracemalloc

import numpy as np
import pytest
from acting_parts import CountingAgent, Env, Sinks, TableAgent
from data_parts import DEADLINE, Worker, make_args

from embodied.run.parallel.actor import actor_server
from embodied.run.parallel.context import RoleContext
from embodied.run.parallel.env.group import make_group
from embodied.run.parallel.env.worker import EnvWorker
from embodied.run.parallel.run_state import RunState
from embodied.run.parallel.settings import WorkerPlan

PLANNED, COUNT, STEPS = 2, 40, 12
CARRY = 50_000  # numbers per environment, so that a table left behind would show


class Enough(BaseException):
    """An environment leaves."""


class LargeAgent(CountingAgent):
    """Remembers much of each environment."""

    def init_policy(self, batch_size):
        return {'count': [0] * batch_size, 'much': np.zeros((batch_size, CARRY))}

    def policy(self, carry, obs, mode='train'):
        self.calls.append((len(carry['count']), mode))
        counts = np.array(carry['count'], np.int32)
        carry = {'count': (counts + 1).tolist(), 'much': carry['much'] + 1}
        return carry, {'action': counts}, {}


@pytest.fixture
def stage(tmp_path, monkeypatch):
    """An actor as it is served, and a way to look at it."""
    actors = []

    class SeenActor(actor_server.Actor):
        most = 0  # slots that there was ever room for

        def __init__(self, *args):
            super().__init__(*args)
            actors.append(self)

        def act(self, *args):
            answer = super().act(*args)
            self.most = max(self.most, self._policy.slots)
            return answer

    monkeypatch.setattr(actor_server, 'Actor', SeenActor)
    args = make_args(tmp_path, envs=PLANNED, eval_envs=0, film_every=0.0)

    class Stage:
        def serve(self, agent):
            barrier = threading.Barrier(1)
            thread = Worker(actor_server.parallel_actor, agent, barrier, args)
            return thread, RunState.of(barrier)

        @property
        def actor(self):
            return actors[0]

        def await_empty(self):
            """Blocks until all that came have left."""
            self.actor.await_leaving(DEADLINE)
            assert not len(self.actor._registry)
            # Their room is free by the time that another worker has left, too.
            self.actor.leave(np.zeros(16, np.uint8))
            with self.actor._policy._lock:
                pass

    stage = Stage()
    stage.args = args
    return stage


def play(args, envids, together, steps=STEPS):
    """A worker whose environments leave after so many steps, all having met before."""
    # A worker may plan for more environments than the actor was started with.
    context = RoleContext.of(args.update(envs=1000))
    counts = dict.fromkeys(envids, 0)

    def hook(env, action):
        counts[env.index] += 1
        if counts[env.index] == 2:
            together.wait(DEADLINE)
        if counts[env.index] == steps:
            raise Enough

    makes = [lambda i=i: Env(i, hook=hook) for i in envids]
    group = make_group(makes, envids, context.health)
    with context.make_client(args.actor_addr, 'worker') as client:
        client.connect(DEADLINE)
        with pytest.raises(Enough):
            EnvWorker(group, WorkerPlan(tuple(envids), False), context).run(client)


def wave(stage, count, offset=0):
    """So many environments come, act at the same time, and leave."""
    together = threading.Barrier(count)
    workers = [
        Worker(play, stage.args, [number + offset], together) for number in range(count)
    ]
    for worker in workers:
        worker.join()
    stage.await_empty()


@pytest.mark.parametrize('make', [TableAgent, LargeAgent])
def test_tables_and_batches_follow_those_who_come_and_leave(stage, make):
    agent = make()
    with Sinks(stage.args) as sinks:
        thread, run_state = stage.serve(agent)
        wave(stage, PLANNED)
        assert stage.actor._policy.slots == PLANNED
        wave(stage, COUNT, offset=100)
        assert stage.actor.most >= COUNT
        assert stage.actor._policy.slots == PLANNED
        wave(stage, PLANNED)
        run_state.stop('SIGTERM')
        thread.join()
    # Each environment has got its own carry in whatever slot: actions count its steps.
    streams = {}
    for stream, serial, row in sinks.rows['add_batch']:
        streams.setdefault(stream, []).append((serial, int(row['action'])))
    assert len(streams) == COUNT + 2 * PLANNED
    for rows in streams.values():
        assert [serial for serial, _ in rows] == list(range(len(rows)))
        if make is LargeAgent:
            last = [i % 4 == 3 for i in range(len(rows))]  # has no action
            assert [a for _, a in rows] == [0 if x else i for i, x in enumerate(last)]


def test_the_memory_of_the_actor_returns_to_its_start(stage):
    with Sinks(stage.args) as sinks:
        thread, run_state = stage.serve(LargeAgent())
        wave(stage, PLANNED)
        tracemalloc.start()
        try:
            wave(stage, PLANNED)
            before = held(sinks)
            wave(stage, COUNT, offset=COUNT)
            peak = tracemalloc.get_traced_memory()[1]
            wave(stage, PLANNED)
            after = held(sinks)
        finally:
            tracemalloc.stop()
            run_state.stop('SIGTERM')
            thread.join()
    table = COUNT * CARRY * np.float64().nbytes
    assert peak > before + table  # so a table that stays would be seen
    assert after < before + table / 10


def held(sinks):
    """Bytes that are in use, but for what the sinks have noted."""
    for notes in (*sinks.rows.values(), sinks.transitions, sinks.metrics):
        notes.clear()
    gc.collect()
    return tracemalloc.get_traced_memory()[0]
