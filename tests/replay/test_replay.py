"""Replay in memory: what is stored, served, evicted, updated and restored."""

import threading

import numpy as np
import pytest

from embodied.core.errors import ConfigError, ReplayError
from embodied.replay import Replay


def step(number, first=False, **extra):
    return {
        'x': np.int32(number),
        'is_first': np.bool_(first),
        'is_last': np.bool_(False),
        'dyn/deter': np.full(3, number, np.float32),
        'log/ignored': 'not even a number',
        **extra,
    }


def filled(steps=40, workers=(0,), length=5, **kwargs):
    replay = Replay(length, **{'chunksize': 8, **kwargs})
    for number in range(steps):
        for worker in workers:
            replay.add(step(1000 * worker + number), worker)
    return replay


def draw_all(replay, draws=4000):
    return set(replay.sample(draws)['x'][:, 0].tolist())


@pytest.mark.parametrize('length', [1, 2, 5, 8, 9, 20])
@pytest.mark.parametrize('steps', [0, 1, 7, 8, 9, 40])
def test_every_start_with_enough_successors_is_an_item(length, steps):
    replay = filled(steps, (0, 2), length)
    each = max(0, steps - length + 1)
    assert len(replay) == 2 * each
    if each:
        expected = {1000 * w + i for w in (0, 2) for i in range(each)}
        assert draw_all(replay) == expected


@pytest.mark.parametrize('chunksize', [1, 3, 8, 100])
def test_sequences_are_consecutive_across_chunks_and_never_mix_streams(chunksize):
    batch = filled(40, (0, 1, 2), 10, chunksize=chunksize).sample(200)
    assert batch['x'].shape == (200, 10) and batch['x'].dtype == np.int32
    assert (np.diff(batch['x'], axis=1) == 1).all()
    assert (batch['dyn/deter'] == batch['x'][..., None]).all()


def test_batches_hold_step_ids_and_no_log_keys():
    batch = filled().sample(6)
    assert set(batch) == {'x', 'is_first', 'is_last', 'dyn/deter', 'stepid'}
    assert batch['stepid'].shape == (6, 5, 20) and batch['stepid'].dtype == np.uint8


def test_step_ids_name_chunk_and_big_endian_index():
    replay = filled(20, length=12)
    batch = replay.sample(50)
    index = batch['stepid'][..., 16:].copy().view('>u4')[..., 0]
    assert (index == batch['x'] % 8).all()
    ids = {row.tobytes() for row in batch['stepid'].reshape(-1, 20)}
    assert len(ids) == len(set(batch['x'].ravel().tolist()))


def test_sequences_begin_like_episodes_and_abandoned_episodes_end():
    replay = Replay(6, chunksize=4)
    for number in range(6):
        replay.add(step(number, first=number in (0, 3)))
    batch = replay.sample(1)
    assert batch['is_first'].tolist() == [[True, False, False, True, False, False]]
    assert batch['is_last'].tolist() == [[False, False, True, False, False, False]]
    again = replay.sample(1)
    np.testing.assert_array_equal(again['is_last'], batch['is_last'])


def test_later_sequences_start_as_first_without_changing_the_store():
    replay = filled(12, length=3)
    batch = replay.sample(500)
    assert batch['is_first'][:, 0].all() and not batch['is_first'][:, 1:].any()


@pytest.mark.parametrize('capacity', [5, 6, 13, 16, 100])
@pytest.mark.parametrize('workers', [(0,), (0, 1, 2)])
def test_capacity_keeps_the_newest_steps(capacity, workers):
    replay = filled(60, workers, 5, capacity=capacity)
    assert replay.stats()['steps'] == min(capacity, 60 * len(workers))
    if len(workers) == 1:
        newest = range(max(0, 60 - capacity), 60 - 4)
        assert draw_all(replay) == set(newest)
    elif len(replay):
        assert draw_all(replay) <= {
            1000 * w + i for w in workers for i in range(60 - capacity // 3 - 1, 56)
        }


def test_eviction_frees_segments():
    replay = filled(2000, capacity=64)
    assert replay.stats()['gigabytes'] < 20 * 4096 * 3 / 1e9


def test_max_gb_bounds_the_bytes():
    frame = np.zeros((64, 64, 3), np.uint8)
    replay = Replay(4, chunksize=16, max_gb=0.005)
    for number in range(2000):
        replay.add({'image': frame, 'x': np.int32(number)}, number % 3)
        assert replay.stats()['gigabytes'] <= 0.005
    batch = replay.sample(2000)
    assert (np.diff(batch['x'], axis=1) == 3).all()
    assert batch['x'].min() > 1000 and batch['x'].max() == 1999


def test_stats_tell_how_full_replay_is():
    stats = filled(40, capacity=64, max_gb=0.1).stats()
    assert (stats['steps'], stats['max_steps']) == (40, 64)
    assert 0 < stats['gigabytes'] < stats['max_gigabytes'] == 0.1
    stats = filled(40).stats()
    assert stats['max_steps'] == stats['max_gigabytes'] == 0


def test_max_gb_below_two_chunks_is_refused():
    replay = Replay(4, max_gb=0.001)
    with pytest.raises(ReplayError, match='max_gb allows 0.001 GB'):
        replay.add({'image': np.zeros((64, 64, 3), np.uint8)})


def test_workers_may_repeat_within_a_batch():
    replay = Replay(4, chunksize=3)
    for n in range(0, 12, 3):
        replay.add_batch({'x': np.arange(n, n + 3)}, [7, 7, 7])
    assert draw_all(replay) == set(range(9))


def test_serial_numbers_skip_rows_that_are_there():
    replay = Replay(2)
    replay.add_batch({'x': np.array([0, 100])}, [0, 1], serials=[0, 0])
    replay.add_batch({'x': np.array([1, 101])}, [0, 1], serials=[1, 1])
    replay.add_batch({'x': np.array([1, 102])}, [0, 1], serials=[1, 2])
    replay.add_batch({'x': np.array([1, 101])}, [0, 1], serials=[1, 1])
    assert replay.inserts == 5
    assert draw_all(replay) == {0, 100, 101}


def test_online_sequences_come_first_and_once():
    replay = filled(12, (0, 1), 5, online=True)
    for mode in ('report', 'eval'):
        replay.sample(20, mode)
    batch = replay.sample(4)
    assert batch['x'][:, 0].tolist() == [0, 1000, 5, 1005]
    assert replay.stats()['online_queue'] == 0


def test_online_sequences_that_are_evicted_are_skipped():
    replay = filled(23, (0,), 5, online=True, capacity=10)
    assert replay.sample(1)['x'][0, 0] == 15
    assert replay.stats()['online_queue'] == 0


def test_online_sequences_may_be_evicted_by_the_insert_that_completes_them():
    replay = Replay(2, capacity=2, chunksize=8, online=True)
    for number in range(2):
        rows = [step(number), step(1000 + number)]
        batch = {key: np.stack([row[key] for row in rows]) for key in rows[0]}
        replay.add_batch(batch, [0, 1])
    assert replay.stats()['steps'] == 2
    assert replay.stats()['online_queue'] == 0


def test_updates_reach_the_steps_they_name():
    replay = filled(40, (0, 1))
    batch = replay.sample(16)
    replay.update({'stepid': batch['stepid'], 'dyn/deter': batch['dyn/deter'] + 0.5})
    touched = set(batch['x'].ravel().tolist())
    after = replay.sample(500)
    changed = (after['dyn/deter'] == after['x'][..., None] + 0.5).all(-1)
    for number, new in zip(after['x'].ravel(), changed.ravel(), strict=True):
        assert new == (number in touched)


def test_updates_of_evicted_or_foreign_steps_are_counted_and_skipped():
    replay = filled(20, capacity=20)
    old = replay.sample(4)
    foreign = filled(20).sample(4)
    for number in range(20, 60):
        replay.add(step(number))
    for data in (old, foreign):
        replay.update({'stepid': data['stepid'], 'dyn/deter': data['dyn/deter'] + 9})
    stats = replay.stats()
    assert stats['stale'] == stats['updates'] == 40
    batch = replay.sample(100)
    assert (batch['dyn/deter'] == batch['x'][..., None]).all()


def test_updates_with_unknown_keys_or_shapes_are_refused():
    replay = filled()
    batch = replay.sample(2)
    with pytest.raises(ReplayError, match="'dyn/nope'"):
        replay.update({'stepid': batch['stepid'], 'dyn/nope': np.zeros((2, 5))})
    with pytest.raises(ReplayError, match='expected'):
        replay.update({'stepid': batch['stepid'], 'dyn/deter': np.zeros((2, 5, 4))})


@pytest.mark.parametrize('context', [0, 1, 3])
def test_latents_of_context_steps_only(context):
    replay = filled(40, context=context)
    batch = replay.sample(8)
    assert batch['dyn/deter'].shape == (8, context, 3)
    assert (batch['dyn/deter'] == batch['x'][:, :context, None]).all()


def test_batches_are_assembled_in_a_given_buffer():
    replay = filled()
    out = {key: np.zeros(*spec) for key, spec in replay.batch_spec(4).items()}
    before = dict(out)
    batch = replay.sample(4, out=out)
    assert all(batch[key] is before[key] for key in before)
    assert (np.diff(batch['x'], axis=1) == 1).all()


def test_the_shapes_of_batches_are_unknown_before_the_first_step():
    with pytest.raises(ReplayError, match='after the first step'):
        Replay(5).batch_spec(4)


def test_equal_seeds_give_equal_samples():
    first, second, third = filled(seed=1), filled(seed=1), filled(seed=2)
    one, two, other = (r.sample(50)['x'].tolist() for r in (first, second, third))
    assert one == two != other


@pytest.mark.parametrize('online', [False, True])
def test_load_continues_with_the_same_samples(online):
    def make():
        return Replay(5, 50, chunksize=8, online=online, seed=3)

    replay, again = make(), make()
    for number in range(70):
        replay.add_batch({k: np.array([v, v]) for k, v in row(number).items()}, [0, 5])
        if number > 20 and number % 9 == 0:
            replay.sample(3)
    batch = replay.sample(2)
    replay.update({'stepid': batch['stepid'], 'dyn/deter': batch['dyn/deter'] * 2})
    again.load(replay.save())
    for number in range(70, 90):
        for target in (replay, again):
            target.add_batch(
                {k: np.array([v, v]) for k, v in row(number).items()}, [5, 0]
            )
        same(replay.sample(4), again.sample(4))
    assert len(replay) == len(again)


def row(number):
    values = step(number)
    del values['log/ignored']
    return values


def same(left, right):
    assert left.keys() == right.keys()
    for key in left:
        np.testing.assert_array_equal(left[key], right[key])


def test_loading_into_a_replay_with_steps_is_refused():
    with pytest.raises(ReplayError, match='while it is empty'):
        filled().load(filled().save())


def test_saving_an_empty_replay_works():
    again = Replay(5)
    again.load(Replay(5).save())
    again.add(step(0))
    assert again.stats()['steps'] == 1


def test_sampling_before_a_sequence_is_complete_is_an_error():
    with pytest.raises(ReplayError, match='4 steps but no sequence of 5'):
        filled(4).sample(1)


@pytest.mark.parametrize(
    'change, message',
    [
        ({'y': np.int32(0)}, r"new \['y'\]"),
        ({'x': np.zeros(2, np.int32)}, "'x' of a step"),
        ({'x': np.float32(0)}, "'x' of a step is float32"),
    ],
)
def test_steps_of_another_form_are_refused(change, message):
    replay = filled(3)
    with pytest.raises(ReplayError, match=message):
        replay.add({**step(0), **change})


def test_text_cannot_be_stored():
    with pytest.raises(ReplayError, match="key 'text'"):
        Replay(2).add({'text': np.array('hello')})


@pytest.mark.parametrize(
    'kwargs',
    [
        {'length': 0},
        {'length': 5, 'capacity': 4},
        {'length': 5, 'chunksize': 0},
        {'length': 5, 'context': 6},
        {'length': 5, 'max_gb': -1},
    ],
)
def test_settings_that_cannot_work_are_refused(kwargs):
    with pytest.raises(ConfigError):
        Replay(**kwargs)


def test_unknown_modes_are_refused():
    with pytest.raises(ReplayError, match="mode 'trian'"):
        filled().sample(1, 'trian')


def test_threads_may_add_sample_and_update_at_once():
    replay = filled(50, (0, 1), capacity=80)
    errors = []

    def run(work):
        try:
            for number in range(50, 250):
                work(number)
        except BaseException as error:  # noqa: BLE001 (checked below)
            errors.append(error)

    def add(number):
        for worker in (0, 1):
            replay.add(step(1000 * worker + number), worker)

    def sample(_):
        batch = replay.sample(4)
        assert (np.diff(batch['x'], axis=1) == 1).all()
        value = batch['dyn/deter']
        assert (value == value[..., :1]).all()
        replay.update({'stepid': batch['stepid'], 'dyn/deter': value + 1000})

    threads = [threading.Thread(target=run, args=(w,)) for w in (add, sample, sample)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not errors


def test_a_replay_takes_the_arguments_of_the_reference_and_its_name_in_messages():
    replay = Replay(5, 100, None, 1024, True, None, True, 'replay_eval', 3)
    with pytest.raises(ReplayError, match="Replay 'replay_eval' has 0 steps"):
        replay.sample(1)
