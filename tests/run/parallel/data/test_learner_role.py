"""The learner between a real replay role and a real logger role."""

import contextlib
import threading

import data_parts as parts
import numpy as np
import pytest
from data_parts import DEADLINE, SHORT, Worker, is_waiting, make_rows
from learner_parts import Run
from local_client import LocalClient

from embodied.core.errors import CheckpointError
from embodied.logging import read_records
from embodied.replay import Replay
from embodied.run.parallel import parallel_learner
from embodied.run.parallel.learner import connections
from embodied.run.parallel.learner.fetcher import Fetcher
from embodied.run.parallel.run_state import RunState
from embodied.run.parallel.saves.manifest import Manifest
from embodied.run.shared import meters
from embodied.streams import Consec, Stateless
from embodied.transport import Disconnected


def run(logdir, begin=0, **options):
    run = Run(logdir, **options)
    run.barrier.wait(DEADLINE)
    run.act(begin)
    run.join()
    return run


def updates(steps):
    """What a run has earned at ratio 8: 2 sequences per row beyond 17, in 3s."""
    return (steps - 17) * 2 // 3


@pytest.mark.parametrize('transport', ['native', 'portal'])
def test_trains_what_the_steps_have_earned_and_ends_all_roles(tmp_path, transport):
    done = run(tmp_path, steps=60, transport=transport)
    assert done.agent.updates == updates(60)
    assert done.run_state.reason == 'run.steps'
    saved = done.saved()
    assert saved['updates'] == done.agent.updates
    assert saved['trained'] == 3 * done.agent.updates
    assert (saved['steps'], saved['complete']) == (60, True)
    assert done.named()['train/updates'][-1] == done.agent.updates
    assert done.named()['train/loss']
    assert {step for step, _, _ in done.entries} == {60}
    events = [x['event'] for x in read_records(tmp_path / 'events.jsonl')]
    assert events == ['ended']


def test_the_logger_lives_until_the_actor_has_told_it_everything(tmp_path):
    last = Run(tmp_path, steps=60)
    with last.run_state.acting():
        last.barrier.wait(DEADLINE)
        last.act()
        assert last.run_state.wait(DEADLINE)
        logger = last.roles[1]
        assert is_waiting(last.learner) and logger.is_alive()
        last.logger.call('add', {'late': 1.0}, 'test', 60).result(DEADLINE)
    last.join()
    assert last.named()['test/late'] == [1.0]


def test_continues_and_makes_up_for_what_was_not_trained(tmp_path):
    first = run(tmp_path, steps=60)
    before = first.saved()
    second = run(tmp_path, begin=15, steps=100)
    assert second.agent.updates == second.saved()['updates'] > before['updates']
    assert second.agent.updates == updates(100)
    assert second.saved()['seconds'] > before['seconds']
    events = [x['event'] for x in read_records(tmp_path / 'events.jsonl')]
    assert events == ['ended', 'restored', 'ended']


def test_latents_come_back_to_replay(tmp_path):
    replays = []

    def make():
        replays.append(parts.make_replay())
        return replays[-1]

    done = run(tmp_path, steps=60, replay=make, deterministic=True)
    batch = replays[0].sample(30)
    latents = set(np.unique(batch['dyn/deter']))
    assert max(latents) <= done.agent.updates and len(latents) > 1


def test_acting_begins_after_the_agent_is_restored(tmp_path):
    run(tmp_path, steps=40)
    loading, go_on = threading.Event(), threading.Event()

    class Slow(parts.Agent):
        def load(self, data, regex=None):
            loading.set()
            assert go_on.wait(DEADLINE)
            super().load(data)

    second = Run(tmp_path, Slow(), steps=60)
    acting = Worker(second.barrier.wait)
    assert loading.wait(DEADLINE)
    assert acting.is_alive() and second.barrier.n_waiting <= 1
    go_on.set()
    acting.join()
    second.act(10)
    second.join()


def test_an_agent_that_cannot_be_restored_ends_all_waits(tmp_path):
    run(tmp_path, steps=40)
    (broken,) = (tmp_path / 'ckpt' / 'agent').glob('*/agent.pkl')
    broken.write_bytes(b'?')
    args = parts.make_args(tmp_path)
    barrier = threading.Barrier(2)
    acting = Worker(barrier.wait, DEADLINE)
    with pytest.raises(CheckpointError, match=r'agent\.pkl has 1 bytes'):
        parallel_learner(parts.Agent(), barrier, args)
    with pytest.raises(threading.BrokenBarrierError):
        acting.join()


def test_starts_from_the_agent_of_another_run(tmp_path):
    first = run(tmp_path / 'first', steps=60)
    loaded = []

    class Remembering(parts.Agent):
        def load(self, data, regex=None):
            loaded.append((data['updates'], regex))

    second = run(
        tmp_path / 'second',
        agent=Remembering(),
        steps=40,
        from_checkpoint=str(tmp_path / 'first' / 'ckpt' / 'agent'),
        from_checkpoint_regex='x.*',
    )
    assert loaded == [(first.agent.updates, 'x.*')]
    assert second.saved()['updates'] == second.agent.updates < first.agent.updates


def test_the_duration_ends_a_run_that_waits_for_replay(tmp_path):
    limited = Run(tmp_path, duration=0.2)
    limited.barrier.wait(DEADLINE)
    limited.join()
    assert limited.run_state.reason == 'run.duration'
    assert limited.agent.updates == 0 and limited.saved()['complete']


def test_earlier_starts_count_for_the_duration(tmp_path):
    first = run(tmp_path, steps=40)
    spent = first.saved()['seconds']
    limited = Run(tmp_path, duration=spent / 2)
    limited.barrier.wait(DEADLINE)
    limited.join()
    assert limited.run_state.reason == 'run.duration'
    assert limited.saved()['updates'] == first.agent.updates


def test_an_interrupt_gives_a_save_but_no_report(tmp_path):
    interrupted = Run(tmp_path, report_every=1e6)
    interrupted.barrier.wait(DEADLINE)
    interrupted.act(end=6)
    interrupted.agent.wait_for_updates(4)
    interrupted.run_state.stop('SIGTERM')
    interrupted.join()
    saved = interrupted.saved()
    assert saved['updates'] == interrupted.agent.updates
    assert not saved['complete'] and interrupted.agent.reports == 0


def test_an_interruption_while_replay_is_awaited_is_heard(tmp_path):
    args = parts.make_args(tmp_path)
    barrier = threading.Barrier(2)
    learner = Worker(parallel_learner, parts.Agent(), barrier, args)
    barrier.wait(DEADLINE)
    RunState.of(barrier).stop('failure')
    learner.join()


def test_reports_come_from_streams_of_their_own(tmp_path):
    trained, evaluated = threading.Event(), threading.Event()

    class Reporting(parts.Agent):
        def report(self, carry, batch):
            (evaluated if batch['number'].max() >= 1000 else trained).set()
            return super().report(carry, batch)

    reported = Run(tmp_path, Reporting(), report_every=-1.0, report_batches=2)
    reported.barrier.wait(DEADLINE)
    acting = Worker(reported.act)
    for serial in range(1000, 1005):
        rows = make_rows(1, serial)
        reported.evaluate.call('add_batch_eval', *rows).result(DEADLINE)
    assert trained.wait(DEADLINE) and evaluated.wait(DEADLINE)
    reported.run_state.stop('run.duration')
    reported.join(acting)
    named = reported.named()
    assert named['report/error'][-1] == named['eval/error'][-1] == 0.5
    assert named['report/video'][-1].shape == (2, 4, 4, 3)
    assert max(reported.agent.numbers) < 1000


def test_reports_that_take_long_are_put_off(tmp_path, monkeypatch):
    monkeypatch.setattr(meters, 'ALLOWED', 1e-9)
    reported = Run(tmp_path, report_every=1e-9, report_batches=1, consec_report=1)
    reported.barrier.wait(DEADLINE)
    acting = Worker(reported.act)
    reported.agent.wait_for_reports(2)
    reported.agent.wait_for_updates(reported.agent.updates + 10)
    reported.run_state.stop('SIGTERM')
    reported.join(acting)
    assert reported.agent.reports == 2  # The first one does not count.
    assert reported.named()['learner/reports'][-1] > 0


def test_a_report_takes_whole_sequences_from_a_fresh_carry(tmp_path):
    def cut(replay, mode):
        source = Stateless(replay.sample, parts.ARGS['batch_size'], mode)
        short = mode == 'report'
        return Consec(source, 2 if short else 4, 2 if short else 1, prefix=1)

    class Reporting(parts.Agent):
        seen = []

        def init_report(self, batch_size):
            self.seen.append([])
            return 0

        def report(self, carry, batch):
            self.seen[-1].append((carry, int(batch['consec'][0, 0])))
            return carry + 1, super().report(carry, batch)[1]

    options = {'report_length': 2, 'consec_report': 2, 'report_batches': 3}
    for _ in range(2):  # the second time the agent comes back, replay goes on
        reported = Run(tmp_path, Reporting(), stream=cut, report_every=-1.0, **options)
        reported.barrier.wait(DEADLINE)
        acting = Worker(reported.act)
        reported.agent.wait_for_reports(8)
        reported.run_state.stop('SIGTERM')
        reported.join(acting)
    expected = [(0, 0), (1, 1), (2, 0), (3, 1), (4, 0), (5, 1)]
    assert all(x == expected[: len(x)] for x in Reporting.seen)
    assert sum(x == expected for x in Reporting.seen) >= 2


def test_an_interruption_while_a_report_waits_for_replay_is_heard(tmp_path):
    answer = threading.Event()

    class Silent(Replay):
        reports = 0

        def sample(self, batch, mode='train', out=None):
            self.reports += mode == 'report'
            if mode == 'report' and self.reports == 2:
                assert answer.wait(DEADLINE)
            return super().sample(batch, mode, out)

    make = lambda: Silent(parts.LENGTH, capacity=10_000, chunksize=64)
    stuck = Run(tmp_path, replay=make, report_every=-1.0, report_batches=2)
    stuck.barrier.wait(DEADLINE)
    acting = Worker(stuck.act)
    stuck.agent.wait_for_reports(1)
    assert is_waiting(stuck.learner)
    stuck.run_state.stop('failure')
    stuck.learner.join()
    answer.set()
    stuck.end_roles()
    with contextlib.suppress(Disconnected):
        acting.join()


def test_two_threads_close_a_stream_one_after_the_other():
    entered, go = threading.Semaphore(0), threading.Event()

    class Slow(LocalClient):
        def close(self):
            entered.release()
            assert go.wait(DEADLINE)
            super().close()

    stream = Fetcher(Slow({}), 'sample_batch_train', 1, 3)
    first, second = Worker(stream.close), Worker(stream.close)
    assert entered.acquire(timeout=DEADLINE)
    assert not entered.acquire(timeout=SHORT)
    go.set()
    first.join()
    second.join()


def test_latents_of_every_update_come_back_to_a_replay_that_is_slow(tmp_path):
    class Slow(Replay):
        updated = 0

        def update(self, data):
            threading.Event().wait(0.01)
            Slow.updated += 1
            super().update(data)

    make = lambda: Slow(parts.LENGTH, capacity=10_000, chunksize=64)
    done = run(tmp_path, steps=60, replay=make, update_queue=1)
    assert Slow.updated == done.agent.updates == updates(60)
    assert done.named()['learner/dropped_updates'][-1] == 0
    events = [x['event'] for x in read_records(tmp_path / 'events.jsonl')]
    assert events == ['ended']


def test_latents_that_are_dropped_are_an_event(tmp_path, monkeypatch):
    monkeypatch.setattr(connections, 'LATENTS_WAIT', 0.1)
    answer = threading.Event()

    class Hanging(Replay):
        def update(self, data):
            assert answer.wait(DEADLINE)
            super().update(data)

    make = lambda: Hanging(parts.LENGTH, capacity=10_000, chunksize=64)
    hanging = Run(tmp_path, replay=make, update_queue=2)
    hanging.barrier.wait(DEADLINE)
    acting = Worker(hanging.act)
    hanging.agent.wait_for_updates(20)  # Training goes on.
    answer.set()
    hanging.run_state.stop('run.duration')
    hanging.join(acting)
    assert hanging.named()['learner/dropped_updates'][-1] > 10
    events = read_records(tmp_path / 'events.jsonl')
    dropped = [x for x in events if x['event'] == 'latents_dropped']
    # Two wait, and one is on its way.
    assert [(x['updates'], x['dropped']) for x in dropped] == [(4, 1)]


def test_without_evaluation_there_is_no_report_of_it(tmp_path):
    done = Run(tmp_path, report_every=-1.0)
    done.barrier.wait(DEADLINE)
    acting = Worker(done.act)
    done.agent.wait_for_reports(1)
    done.run_state.stop('run.duration')
    done.join(acting)
    assert 'report/error' in done.named() and 'eval/error' not in done.named()


class LookingAhead(parts.Agent):
    """Fetches three batches before it needs them, and does not expect an end."""

    def stream(self, source):
        ready = []
        while True:
            while len(ready) < 3:
                ready.append(next(source))
            yield ready.pop(0)


def test_an_agent_may_fetch_ahead_and_stumble_over_the_end(tmp_path):
    done = run(tmp_path, agent=LookingAhead(), steps=60)
    assert updates(60) - 3 <= done.agent.updates <= updates(60)


def test_foreign_replay_and_stream_are_enough(tmp_path):
    done = run(tmp_path, replay=parts.ListReplay, stream=parts.foreign_stream, steps=60)
    assert done.agent.updates == updates(60)


def test_an_error_of_the_agent_is_raised(tmp_path):
    class Failing(parts.Agent):
        def train(self, carry, batch):
            raise ValueError('no gradient today')

    failing = Run(tmp_path, Failing())
    failing.barrier.wait(DEADLINE)
    failing.act(end=5)
    with pytest.raises(ValueError, match='no gradient today'):
        failing.learner.join()
    failing.end_roles()


class FailingReplay:
    """Ours, whose first save since the start fails."""

    def __init__(self, replay, saved):
        self._replay, self._saved = replay, saved
        self._failed = False

    def __getattr__(self, name):
        return getattr(self._replay, name)

    def __len__(self):
        return len(self._replay)

    def save(self):
        if not self._failed:
            self._failed = True
            raise OSError(28, 'No space left on device')
        self._saved.set()
        return self._replay.save()


@pytest.mark.parametrize('transport', ['native', 'portal'])
def test_a_save_that_fails_in_replay_ends_neither_of_them(tmp_path, transport):
    saved = threading.Event()
    make = lambda: FailingReplay(parts.make_replay(), saved)
    saving = Run(tmp_path, replay=make, save_every=-1.0, transport=transport)
    saving.barrier.wait(DEADLINE)
    acting = Worker(saving.act)
    assert saved.wait(DEADLINE)
    saving.agent.wait_for_updates(saving.agent.updates + 2)
    saving.run_state.stop('SIGTERM')
    saving.join(acting)
    # After a signal the learner no longer waits for a replay that is slow.
    late = 'latents_dropped'
    events = [x for x in read_records(tmp_path / 'events.jsonl') if x['event'] != late]
    assert [x['event'] for x in events] == ['save_failed', 'ended']
    assert events[0]['role'] == 'replay'
    assert 'No space left on device' in events[0]['reason']
    assert (events[1]['state'], events[1]['reason']) == ('stopped', 'SIGTERM')
    manifest = Manifest.read(tmp_path / 'ckpt')
    assert set(manifest.saves) == {'agent', 'replay', 'logger'}
    assert (manifest.state, manifest.reason) == ('stopped', 'SIGTERM')


def test_saves_while_it_trains(tmp_path):
    saves = threading.Semaphore(0)

    class Saving(parts.Agent):
        def save(self):
            saves.release()
            return super().save()

    saving = Run(tmp_path, Saving(), save_every=-1.0)
    saving.barrier.wait(DEADLINE)
    acting = Worker(saving.act)
    assert saves.acquire(timeout=DEADLINE) and saves.acquire(timeout=DEADLINE)
    saving.run_state.stop('failure')  # no last save
    saving.learner.join()
    assert 0 < saving.saved()['updates'] <= saving.agent.updates
    saving.end_roles()
    with contextlib.suppress(Disconnected):
        acting.join()
