"""Replays that are not ours, behind the service of the replay role."""

import functools
import threading

import data_parts as parts
import numpy as np
import pytest
from data_parts import Worker
from replay_role_parts import fill, load, make_service, owed, save


@pytest.mark.parametrize('stream', [parts.foreign_stream, lambda r, m: Foreign(r, m)])
def test_a_foreign_replay_needs_add_and_sample_only(tmp_path, stream):
    service = make_service(tmp_path, parts.ListReplay(), stream)
    assert fill(service, range(5)) == {'steps': 20, 'stop': False}
    batch = service.sample_batch_train(0)
    assert batch['number'].shape == (3, 5)
    assert service.sample_batch_report(0)['number'].shape == (3, 5)
    service.update({'stepid': np.zeros((3, 5, 20), np.uint8)})
    assert service.metrics()['replay']['fill'] == 1.0


class Foreign:
    def __init__(self, replay, mode):
        self.replay, self.mode = replay, mode

    def __iter__(self):
        return self

    def __next__(self):
        return self.replay.sample(3, self.mode)


def test_a_replay_without_memory_is_filled_again_before_training_goes_on(tmp_path):
    make = functools.partial(
        make_service, tmp_path, stream=parts.foreign_stream, steps=32 + 28
    )
    service = make(parts.ListReplay(), train_ratio=0.5)
    fill(service, range(8))
    save(service, tmp_path)
    service = make(parts.ListReplay())
    load(service, tmp_path)
    assert service.steps == 32
    sampling = Worker(service.sample_batch_train, 600)
    fill(service, range(4))
    assert sampling.is_alive()
    assert fill(service, [4])['steps'] == 52
    sampling.join()
    acting = Worker(fill, service, [5, 6])
    # From now on as in a fresh run: 22 sequences for 28 rows.
    batches = [service.sample_batch_train(number) for number in range(603, 615, 3)]
    assert all(batches) and acting.join() == {'steps': 60, 'stop': True}
    assert 3 * (1 + len(batches) + len(owed(service, 615))) == 21


def test_one_thread_at_a_time_uses_a_foreign_replay(tmp_path):
    class Fragile(parts.ListReplay):
        inside = 0

        def add(self, step, worker=0):
            self.use(lambda: super(Fragile, self).add(step, worker))

        def sample(self, batch, mode='train'):
            return self.use(lambda: super(Fragile, self).sample(batch, mode))

        def use(self, fn):
            assert not self.inside
            self.inside += 1
            result = fn()
            threading.Event().wait(1e-4)
            self.inside -= 1
            return result

    service = make_service(tmp_path, Fragile(), parts.foreign_stream, train_ratio=-1)
    fill(service, range(5))
    users = [Worker(fill, service, range(5, 40)), Worker(sample_many, service, 'train')]
    users.append(Worker(sample_many, service, 'report'))
    for user in users:
        user.join()


def sample_many(service, mode):
    for number in range(0, 90, 3):
        assert getattr(service, f'sample_batch_{mode}')(number)
