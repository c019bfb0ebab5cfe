"""The train ratio as the replay role keeps it: at every moment, and after restarts."""

import functools
import shutil
from fractions import Fraction

import data_parts as parts
import pytest
from data_parts import DEADLINE, Worker, make_rows
from replay_role_parts import add, fill, load, make_service, running, save, served

from embodied.logging import read_records
from embodied.run.parallel.learner.fetcher import Fetcher


class Ledger:
    """What was really trained and committed; compared whenever one of them changes."""

    def __init__(self, service, ratio, rows):
        self.service = service
        self.ratio = Fraction(ratio) / 4  # sequences of 4 steps
        # A request comes whole at a balance of 0; 9 sequences are not trained yet.
        self.longest_debt = max(12, rows * self.ratio + 9)
        self.trained = 0

    @property
    def wanted(self):
        limiter = self.service.limiter
        return max(0, limiter.inserts - limiter.minimum) * self.ratio

    def check(self):
        # The other side may move meanwhile: what was trained when the inserts were
        # read lies between the two values around it.
        before, wanted, after = self.trained, self.wanted, self.trained
        assert before - wanted <= 12
        assert wanted - after <= self.longest_debt


@pytest.mark.parametrize(
    'ratio, steps', [(0.5, 1500), (8, 650), (32, 170), (512, 42)], ids=str
)
@pytest.mark.parametrize('rows', [1, 7])
def test_training_stays_within_the_band_at_every_moment(tmp_path, ratio, steps, rows):
    service = make_service(tmp_path, train_ratio=ratio, steps=steps, envs=rows)
    ledger = Ledger(service, ratio, rows)
    with served(service) as connect:
        batches = Fetcher(connect(), 'sample_batch_train', 2, 3)
        batches.start()

        def act():
            replay, serial, stop = connect(), 0, False
            while not stop:
                stop = replay.call('add_batch', *make_rows(rows, serial)).result()[
                    'stop'
                ]
                ledger.check()
                serial += 1

        actor = Worker(act)
        for _ in batches:
            ledger.check()
            ledger.trained += 3
            ledger.check()
        actor.join()
    assert 0 <= service.steps - steps < rows
    assert ledger.trained == ledger.wanted // 3 * 3
    if ledger.wanted > 100 * 12:
        assert ledger.trained == pytest.approx(float(ledger.wanted), rel=0.02)


def test_without_a_ratio_neither_side_waits(tmp_path):
    service = make_service(tmp_path, train_ratio=-1)
    fill(service, range(100))
    numbers = range(0, 3000, 3)
    assert all(service.sample_batch_train(number) for number in numbers)
    assert fill(service, range(100, 110))['steps'] == 440


def test_another_ratio_holds_for_the_rows_to_come(tmp_path):
    service = make_service(tmp_path)  # 2 sequences per row beyond 17
    fill(service, range(5))
    assert service.limiter.balance() == 2 * (20 - 17)
    for ratio, per_row in ((64, 16), (2, 0.5), (2, 0.5), (8, 2)):
        train(service)
        balance, steps = service.limiter.balance(), service.steps
        save(service, tmp_path)
        service = make_service(tmp_path, train_ratio=ratio)
        load(service, tmp_path)
        assert service.limiter.balance() == balance
        fill(service, [steps // 4])
        assert service.limiter.balance() == balance + 4 * per_row


def test_the_ratio_of_the_metrics_is_that_of_the_steps_for_which_it_holds(tmp_path):
    service = make_service(tmp_path)  # ratio 8
    for serial in range(20):
        fill(service, [serial])
        train(service)
    assert service.metrics()['replay']['train_ratio'] == pytest.approx(8, rel=0.1)
    save(service, tmp_path)
    service = make_service(tmp_path, train_ratio=64)
    load(service, tmp_path)
    assert service.metrics()['replay']['train_ratio'] == 0
    for serial in range(20, 40):
        fill(service, [serial])
        train(service)
    assert service.metrics()['replay']['train_ratio'] == pytest.approx(64, rel=0.1)


def train(service):
    """As long as training is behind the ratio."""
    while service.limiter.balance() > 0:
        assert service.sample_batch_train(service.limiter.samples)


def test_a_ratio_that_was_lifted_and_comes_back_owes_nothing_of_the_past(tmp_path):
    service = make_service(tmp_path, train_ratio=-1)
    fill(service, range(30))
    for number in range(0, 1200, 3):
        assert service.sample_batch_train(number)
    save(service, tmp_path)
    service = make_service(tmp_path)
    load(service, tmp_path)
    assert service.limiter.balance() == 0
    fill(service, [30])
    assert service.limiter.balance() == 2 * 4


@pytest.mark.parametrize(
    ('ratio', 'balance'), [(8, -2), (0.5, 0), (512, 0)], ids=['same', 'less', 'more']
)
def test_a_save_that_does_not_tell_the_ratio_goes_on_without_a_stall(
    tmp_path, ratio, balance
):
    """As version 0.1.0 wrote it."""
    service = make_service(tmp_path)
    for serial in range(40):
        fill(service, [serial])
        train(service)
    data = service.save()
    assert service.limiter.balance() == 2 * (160 - 17) - 3 * 96 == -2
    del data['ratios']
    service = make_service(tmp_path, train_ratio=ratio)
    service.load(data)
    assert service.limiter.balance() == balance


def test_another_ratio_is_known_when_replay_dies_before_its_next_save(tmp_path):
    make = functools.partial(parts.make_replay, tmp_path / 'replay')
    with running(tmp_path, make, steps=20) as (connect, _):
        add(connect(), range(5))
        assert served_until_the_end(connect(), 0) == (20 - 17) * 2
    checkpoints, copy = tmp_path / 'ckpt', tmp_path / 'copy'
    with running(tmp_path, make, train_ratio=64, steps=28) as (connect, _):
        add(connect(), [5])
        shutil.copytree(checkpoints, copy)
    # As if it had been killed without the save that it makes at the end.
    shutil.rmtree(checkpoints)
    copy.rename(checkpoints)
    with running(tmp_path, make, train_ratio=64, steps=28) as (connect, _):
        inserting = Worker(add, connect(), [6])
        assert served_until_the_end(connect(), 6) == (28 - 20) * 16 // 3 * 3
        inserting.join()
    events = read_records(tmp_path / 'events.jsonl')
    assert [(x['event'], x['step'], x['ratio']) for x in events] == [
        ('train_ratio', 20, 64)
    ]


def served_until_the_end(replay, number):
    """Sequences that replay hands out before it says that none is owed."""
    begin = number
    while replay.call('sample_batch_train', number).result(DEADLINE):
        number += 3
    return number - begin
