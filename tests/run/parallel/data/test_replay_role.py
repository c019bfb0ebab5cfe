"""The replay role: its service alone, and over real servers and clients."""

import contextlib
import functools

import data_parts as parts
import numpy as np
import pytest
from data_parts import DEADLINE, Worker, make_rows
from replay_role_parts import fill, load, make_service, owed, running, save

from embodied.run.parallel.replay.buffer import Buffer
from embodied.run.parallel.replay.replay_service import ReplayService
from embodied.run.parallel.supervision.health import Health
from embodied.streams import Consec, Stateless
from embodied.transport import RemoteError


def test_answers_tell_the_committed_steps_without_repeats(tmp_path):
    service = make_service(tmp_path)
    assert fill(service, range(3)) == {'steps': 12, 'stop': False}
    assert fill(service, [2]) == {'steps': 12, 'stop': False}
    steps, streams, serials = make_rows(4, 3)
    serials[:2] = 2  # half of the rows were stored before
    answer = service.add_batch(steps, streams, serials)
    assert answer == {'steps': 14, 'stop': False}


def test_rows_of_evaluation_are_neither_counted_nor_made_to_wait(tmp_path):
    service = make_service(tmp_path, train_ratio=0.5)
    for serial in range(50):
        answer = service.add_batch_eval(*make_rows(1, serial))
    assert answer == {'steps': 0, 'stop': False}
    assert service.sample_batch_eval(0)['number'].shape == (3, 5)


@pytest.mark.parametrize('transport', ['native', 'portal'])
def test_a_waiting_insert_holds_up_nothing_else(tmp_path, transport):
    with running(tmp_path, transport=transport) as (connect, _):
        replay, other = connect(), connect()
        # Ratio 8 at 4 steps per sequence: 2 sequences per row beyond 17 rows, and
        # a band of 12 less the 9 that may be on their way.
        pending = [
            replay.call('add_batch', *make_rows(4, serial)) for serial in range(7)
        ]
        for future in pending[:5]:
            future.result(DEADLINE)
        for serial in range(5):
            rows = make_rows(1, serial, streams=[99])
            other.call('add_batch_eval', *rows).result(DEADLINE)
        batch = other.call('sample_batch_report', 0).result(DEADLINE)
        assert other.call('sample_batch_eval', 0).result(DEADLINE)['number'].shape == (
            3,
            5,
        )
        latents = np.ones((3, 5, 2), np.float32)
        update = {'stepid': batch['stepid'], 'dyn/deter': latents}
        other.call('update', update).result(DEADLINE)
        assert not pending[-1].done()
        # The balance is 6 and has to come down to 0, then from 8 to 0 again.
        for number in range(0, 15, 3):
            other.call('sample_batch_train', number).result(DEADLINE)
        assert pending[-1].result(DEADLINE)['steps'] == 28


def test_the_run_is_over_at_its_steps_when_no_update_is_owed(tmp_path):
    service = make_service(tmp_path, steps=25)
    assert fill(service, range(5)) == {'steps': 20, 'stop': False}
    acting = Worker(fill, service, [5, 6])
    batches = [service.sample_batch_train(number) for number in range(0, 15, 3)]
    assert acting.join() == {'steps': 28, 'stop': True}
    # 2 sequences for each of the 11 rows beyond 17 are 7 whole batches of 3.
    assert len(batches + owed(service, number=15)) == 7
    assert service.add_batch(*make_rows(4, 7)) == {'steps': 28, 'stop': True}


def test_batches_that_died_with_a_learner_are_served_again(tmp_path):
    service = make_service(tmp_path, steps=28)
    limiter = service.limiter
    fill(service, range(5))
    for number in (0, 3, 6):
        assert service.sample_batch_train(number)
    assert (limiter.samples, limiter.balance()) == (9, -3)
    # Another learner comes, whose checkpoint knows of one update.
    assert service.sample_batch_train(3)
    assert (limiter.samples, limiter.balance()) == (6, 0)
    fill(service, [5])
    for number in (6, 9, 12):
        assert service.sample_batch_train(number)
    fill(service, [6])
    assert len(owed(service, number=15)) == (22 - 15) // 3


def test_the_end_wakes_all_who_wait(tmp_path):
    service = make_service(tmp_path)
    waiting = [
        Worker(service.sample_batch_train, 0),
        Worker(service.sample_batch_report, 0),
        Worker(service.sample_batch_eval, 0),
    ]
    fill(service, range(5), count=3)
    waiting.append(Worker(fill, service, range(5, 30)))
    waiting[0].join()
    service.finish()
    assert waiting[2].join() == {}
    assert waiting[3].join()['stop']


def test_streams_that_are_too_short_delay_training_instead_of_ending_it(tmp_path):
    service = make_service(tmp_path)
    for stream in range(30):  # environments that fail again and again
        for serial in range(4):
            service.add_batch(*make_rows(1, serial, streams=[stream]))
    sampling = Worker(service.sample_batch_train, 0)
    answer = service.add_batch(*make_rows(1, 4, streams=[29]))
    assert answer == {'steps': 121, 'stop': False}
    assert sampling.join()['number'].tolist() == [[0, 1, 2, 3, 4]] * 3


def test_a_restart_keeps_steps_balance_and_latents(tmp_path):
    with contextlib.closing(parts.make_replay(tmp_path / 'replay')) as replay:
        service = make_service(tmp_path, replay, train_ratio=0.5)
        fill(service, range(6))
        batch = service.sample_batch_train(0)
        latents = np.full((3, 5, 2), 7, np.float32)
        service.update({'stepid': batch['stepid'], 'dyn/deter': latents})
        save(service, tmp_path)
        fill(service, [6], count=2)  # after the save: known to the folder only
    with contextlib.closing(parts.make_replay(tmp_path / 'replay')) as replay:
        service = make_service(tmp_path, replay, train_ratio=0.5)
        load(service, tmp_path)
        assert service.steps == 26
        assert (service.limiter.inserts, service.limiter.samples) == (26, 3)
        # The same rows are sent again, since no answer has arrived.
        assert fill(service, [6], count=2)['steps'] == 26
        latents = [service.sample_batch_train(3)['dyn/deter'] for _ in range(20)]
        assert set(np.unique(latents)) == {0, 7}


def test_streams_continue_where_they_were_saved(tmp_path):
    cut = lambda replay, mode: Consec(Stateless(replay.sample, 3, mode), 2, 2, prefix=1)
    replay = parts.make_replay()
    service = make_service(tmp_path, replay, cut, train_ratio=0.5)
    fill(service, range(8), count=3)
    first = service.sample_batch_train(0)
    save(service, tmp_path)
    second = service.sample_batch_train(3)
    assert (first['stepid'][:, -1] == second['stepid'][:, 0]).all()
    other = make_service(tmp_path, parts.make_replay(), cut, train_ratio=0.5)
    load(other, tmp_path)
    again = other.sample_batch_train(3)
    assert (again['number'] == second['number']).all()
    assert again['consec'][0, 0] == 1


def test_a_learner_that_comes_back_begins_with_a_fresh_sequence(tmp_path):
    """It has lost the carry that the second batch of a sequence would follow."""
    cut = lambda replay, mode: Consec(Stateless(replay.sample, 3, mode), 2, 2, prefix=1)
    settings = {'train_ratio': -1, 'batch_length': 2, 'consec_train': 2}
    service = make_service(tmp_path, parts.make_replay(), cut, **settings)
    fill(service, range(20), count=3)
    consec = lambda number: service.sample_batch_train(number)['consec'][0, 0]
    assert [consec(0), consec(3), consec(6)] == [0, 1, 0]
    assert [consec(3), consec(6), consec(9)] == [0, 1, 0]


@pytest.mark.parametrize('mode', ['report', 'eval'])
def test_reports_begin_with_a_fresh_sequence_after_any_restart(tmp_path, mode):
    cut = lambda replay, mode: Consec(Stateless(replay.sample, 3, mode), 2, 2, prefix=1)
    settings = {'report_length': 2, 'consec_report': 2}

    def make():
        context = parts.make_context(tmp_path, train_ratio=-1, **settings)
        health = context.health
        train = Buffer(parts.make_replay(), cut, ('train', 'report'), health)
        evaluation = Buffer(parts.make_replay(), cut, ('eval',), health)
        return ReplayService(train, evaluation, context)

    service = make()
    fill(service, range(20), count=3)
    for serial in range(10):
        service.add_batch_eval(*make_rows(3, serial))

    def chunk(number):
        batch = getattr(service, f'sample_batch_{mode}')(number)
        return int(batch['consec'][0, 0])

    assert [chunk(x) for x in (0, 3, 6)] == [0, 1, 0]
    assert [chunk(x) for x in (0, 3, 6)] == [0, 1, 0]  # another learner
    save(service, tmp_path)
    service = make()
    load(service, tmp_path)
    # Replay itself comes back in the middle: the rest is of another sequence.
    assert [chunk(x) for x in (9, 12, 15, 18)] == [0, 0, 1, 0]


def test_what_has_ended_has_no_rates_of_zero(tmp_path):
    traffic = {'inserts', 'samples', 'updates', 'replay_ratio', 'insert_wait'}
    service = make_service(tmp_path, steps=24, train_ratio=-1)
    fill(service, range(5))
    service.sample_batch_train(0)
    assert traffic <= service.metrics()['replay'].keys()
    fill(service, [5])  # the last steps
    assert service.over
    assert service.metrics()['replay']['inserts'] == 4
    assert not traffic & service.metrics()['replay'].keys()
    assert service.metrics()['replay']['steps'] == 24


def test_metrics_tell_the_ratio_reached_and_who_waits(tmp_path):
    service = make_service(tmp_path)
    fill(service, range(5))
    service.metrics()
    acting = Worker(fill, service, [5, 6])
    for number in range(0, 15, 3):
        service.sample_batch_train(number)
    acting.join()
    metrics = service.metrics()['replay']
    assert metrics['fill'] == 1.0
    assert metrics['train_ratio'] == 15 * 4 / (28 - 17)
    assert metrics['balance'] == 22 - 15
    assert metrics['steps'] == 28
    assert 0 <= metrics['sample_wait'] <= 1 and 0 < metrics['insert_wait'] <= 1


def test_our_batches_are_assembled_where_the_server_wants_them(tmp_path):
    arrays = []

    def empty(shape, dtype):
        arrays.append(np.zeros(shape, dtype))
        return arrays[-1]

    replay = parts.make_replay()
    buffer = Buffer(replay, parts.make_stream, ('train',), Health(), empty)
    for serial in range(5):
        buffer.add(*make_rows(2, serial))
    batch = buffer.take('train')
    owners = {id(array) for array in arrays}
    assert all(
        id(value) in owners or id(value.base) in owners
        for key, value in batch.items()
        if key != 'consec'
    )


def test_the_role_saves_at_the_end_and_continues_when_started_again(tmp_path):
    make = functools.partial(parts.make_replay, tmp_path / 'replay')
    with running(tmp_path, make) as (connect, _):
        replay = connect()
        for serial in range(5):
            replay.call('add_batch', *make_rows(4, serial)).result(DEADLINE)
        first = replay.call('sample_batch_train', 0).result(DEADLINE)
    with running(tmp_path, make) as (connect, _):
        replay = connect()
        second = replay.call('sample_batch_train', 3).result(DEADLINE)
        answer = replay.call('add_batch', *make_rows(4, 4)).result(DEADLINE)
        assert answer == {'steps': 20, 'stop': False}
    assert set(first) == set(second)


def test_an_error_of_the_replay_reaches_who_called(tmp_path):
    with running(tmp_path) as (connect, _):
        replay = connect()
        rows = make_rows(4)
        rows[0]['reward'] = rows[0]['reward'][:2]
        with pytest.raises(RemoteError, match='one row per worker'):
            replay.call('add_batch', *rows).result(DEADLINE)
        replay.call('add_batch', *make_rows(4)).result(DEADLINE)
