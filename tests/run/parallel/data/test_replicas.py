"""Two learners, each with its own replay, train, stop and go on in step."""

import threading

import data_parts as parts
import numpy as np
import pytest
from data_parts import DEADLINE, LENGTH, Worker
from learner_parts import Run

from embodied.clock import Agreement
from embodied.core.checkpoint import load_part
from embodied.core.errors import CheckpointError, ConfigError
from embodied.run.parallel import parallel_learner

REPLICAS = 2


class Meeting:
    """Where all replicas give a value and get the values of all, in order."""

    def __init__(self):
        self._given = {}
        self._barrier = threading.Barrier(REPLICAS)

    def __call__(self, replica, value):
        self._given[replica] = value
        self._barrier.wait(DEADLINE)
        values = [self._given[i] for i in range(REPLICAS)]
        self._barrier.wait(DEADLINE)
        return values


class Together(parts.Agent):
    """An update needs all replicas; its votes are known with the next one."""

    def __init__(self, replica, meeting):
        super().__init__()
        self.agreement = Agreement(replica)
        self._meet = lambda value: meeting(replica, value)
        self._pending = None
        self.reported_at = []

    def train(self, carry, batch):
        votes = self._meet(self.agreement.votes.copy())
        before, self._pending = self._pending, np.min(votes, 0)
        carry, outs, metrics = super().train(carry, batch)
        if before is not None:
            self.agreement.learn(before)
        if self.agreement.over:
            self.updates -= 2
            return carry, {}, {}
        return carry, outs, metrics

    def report(self, carry, batch):
        self.reported_at.append(self._meet(self.updates))
        return super().report(carry, batch)

    def follow(self, counters):
        self.updates, *counters = self._meet([self.updates, *counters])[0]
        return counters

    def idle_batch(self, batch_size, batch_length):
        return {'number': np.zeros((batch_size, LENGTH), np.int32)}

    def part(self):
        self._meet(None)


class Pair:
    """Both replicas of a run, acting until they end."""

    def __init__(self, logdir, begin=0, **options):
        meeting = Meeting()
        self.runs = [
            Run(logdir / str(i), Together(i, meeting), replicas=REPLICAS, **options)
            for i in range(REPLICAS)
        ]
        for run in self.runs:
            run.barrier.wait(DEADLINE)
        self._actors = [Worker(run.act, begin) for run in self.runs]

    def join(self):
        for run, actor in zip(self.runs, self._actors, strict=True):
            run.join(actor)
        return self

    @property
    def updates(self):
        """Of each agent and of each save."""
        return [(run.agent.updates, run.saved()['updates']) for run in self.runs]


def test_all_replicas_stop_after_the_same_update_when_one_is_told(tmp_path):
    pair = Pair(tmp_path)
    pair.runs[0].agent.wait_for_updates(5)
    pair.runs[1].run_state.stop('SIGTERM')
    pair.join()
    reasons = [run.run_state.reason for run in pair.runs]
    assert reasons == ['another replica', 'SIGTERM']
    count = pair.runs[0].agent.updates
    assert count >= 4
    assert pair.updates == [(count, count)] * REPLICAS
    for run in pair.runs:
        assert run.saved()['trained'] == 3 * count
        assert not run.saved()['complete']


def test_replicas_end_together_at_the_limit_and_go_on_when_it_is_raised(tmp_path):
    first = Pair(tmp_path, steps=60).join()
    (count, _), *_ = first.updates
    assert first.updates == [(count, count)] * REPLICAS
    second = Pair(tmp_path, begin=15, steps=100).join()
    (more, _), *_ = second.updates
    assert more > count
    assert second.updates == [(more, more)] * REPLICAS


def test_the_agent_is_saved_by_replica_0_which_the_others_follow(tmp_path):
    Pair(tmp_path, steps=60).join()
    folders = [tmp_path / str(i) / 'ckpt' / 'agent' for i in range(REPLICAS)]
    saved = load_part(folders[0], 'agent')['updates']
    with pytest.raises(CheckpointError, match="no part 'agent'"):
        load_part(folders[1], 'agent')
    pair = Pair(tmp_path, begin=15, steps=60).join()
    assert [run.agent.updates for run in pair.runs] == [saved] * REPLICAS


def test_replicas_report_in_step(tmp_path):
    pair = Pair(tmp_path, report_every=-1.0)
    pair.runs[0].agent.wait_for_reports(2)
    pair.runs[1].run_state.stop('SIGTERM')
    pair.join()
    meetings = pair.runs[0].agent.reported_at
    assert all(one == two for one, two in meetings)
    assert pair.runs[1].agent.reported_at == meetings


def test_an_agent_that_trains_in_one_process_has_no_replicas(tmp_path):
    args = parts.make_args(tmp_path, replicas=2)
    with pytest.raises(ConfigError, match='replicas=2: this agent trains in one'):
        parallel_learner(parts.Agent(), threading.Barrier(1), args)
