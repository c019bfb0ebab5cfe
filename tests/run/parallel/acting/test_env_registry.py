"""Workers come and go; each row is assigned to a stream, or to none."""

import numpy as np

from embodied.run.parallel.actor.environments import (
    ENV_SILENT,
    SWEEP_SECONDS,
    EnvRegistry,
)

ONE, TWO = bytes(15) + b'1', bytes(15) + b'2'


def admit(registry, *rows, mode='train', repeated=False):
    """Rows are (envid, worker, is_first)."""
    envids = np.array([row[0] for row in rows], np.int32)
    workers = np.array([np.frombuffer(row[1], np.uint8) for row in rows])
    is_first = np.array([row[2] for row in rows])
    return registry.admit(mode, envids, workers, is_first, repeated)


def test_a_worker_begins_with_a_first_step():
    registry = EnvRegistry()
    rows = admit(registry, (2, ONE, False), (0, ONE, True))
    assert rows.admitted.tolist() == [False, True]
    assert rows.slots.tolist() == [0, 1]
    assert rows.renewed.tolist() == [1]
    rows = admit(registry, (2, ONE, True), (0, ONE, False))
    assert rows.admitted.all()
    assert rows.slots.tolist() == [2, 1]
    assert rows.renewed.tolist() == [2]
    assert admit(registry, (2, ONE, True), (0, ONE, True)).renewed.tolist() == []
    assert len(registry) == 2


def test_streams_are_named_by_environment_and_worker():
    pairs = [(e, s) for e in range(3) for s in (ONE, TWO)]
    names = [admit(EnvRegistry(), (e, s, True)).streams[0] for e, s in pairs]
    again = [admit(EnvRegistry(), (e, s, True)).streams[0] for e, s in pairs]
    assert names == again
    assert len(set(names)) == len(pairs)
    assert min(names) >= 0


def test_a_new_worker_replaces_the_old_one_for_good():
    registry = EnvRegistry()
    admit(registry, (1, ONE, True))
    rows = admit(registry, (1, TWO, True))
    assert rows.admitted.all()
    assert rows.renewed.tolist() == [1]
    for first in (False, True):
        rows = admit(registry, (1, ONE, first), (1, TWO, False))
        assert rows.admitted.tolist() == [False, True]
        assert rows.replaced.tolist() == [True, False]


def test_the_last_of_two_workers_in_one_batch_stays():
    rows = admit(EnvRegistry(), (0, ONE, True), (0, TWO, True))
    assert rows.admitted.tolist() == [False, True]
    assert rows.replaced.tolist() == [True, False]


def test_steps_that_were_sent_before_do_not_begin_a_worker():
    registry = EnvRegistry()
    admit(registry, (0, ONE, True))
    rows = admit(registry, (0, ONE, False), (1, ONE, True), repeated=True)
    assert rows.admitted.tolist() == [True, False]
    assert not rows.replaced.any()


def test_a_worker_that_leaves_takes_its_environments_along():
    registry = EnvRegistry()
    admit(registry, (0, ONE, True), (1, TWO, True), (2, ONE, True))
    registry.leave(np.frombuffer(ONE, np.uint8))
    assert len(registry) == 1
    rows = admit(registry, (0, ONE, False), (1, TWO, False))
    assert rows.admitted.tolist() == [False, True]


def test_training_and_evaluation_may_have_environments_of_the_same_number():
    registry = EnvRegistry()
    admit(registry, (5, ONE, True))
    rows = admit(registry, (5, TWO, True), mode='eval')
    assert rows.slots.tolist() == [2]
    assert admit(registry, (5, ONE, False)).slots.tolist() == [1]
    assert (registry.count('train'), registry.count('eval'), len(registry)) == (1, 1, 2)


def test_slots_are_given_back_and_the_lowest_free_one_is_taken():
    registry = EnvRegistry()
    workers = [bytes([i]) * 16 for i in range(8)]
    for envid, worker in enumerate(workers):
        admit(registry, (100 * envid, worker, True))
    assert registry.slots == 8
    for gone, highest in ((6, 8), (2, 8), (7, 6), (5, 5)):
        registry.leave(np.frombuffer(workers[gone], np.uint8))
        assert registry.slots == highest
    for slot in (3, 6, 7):
        assert admit(registry, (slot, ONE, True)).slots.tolist() == [slot]
    for worker in (*workers, ONE):
        registry.leave(np.frombuffer(worker, np.uint8))
    assert (len(registry), registry.slots) == (0, 0)


def test_who_is_silent_while_others_act_gives_its_slot_back():
    now = [0.0]
    registry = EnvRegistry(clock=lambda: now[0])
    admit(registry, (0, ONE, True), (1, TWO, True))

    def act(seconds, step):
        given_up = 0
        for _ in range(int(seconds / step)):
            now[0] += step
            given_up += registry.sweep()
            admit(registry, (1, TWO, False))
        return given_up

    # When nothing acts for hours, only environments that stay away are at fault.
    assert act(seconds=7200.0, step=3600.0) == 0
    assert act(seconds=ENV_SILENT - SWEEP_SECONDS, step=0.5) == 0
    assert len(registry) == 2
    assert act(seconds=3 * SWEEP_SECONDS, step=0.5) == 1
    assert len(registry) == 1
    rows = admit(registry, (0, ONE, False), (1, TWO, False))
    assert rows.admitted.tolist() == [False, True]
    assert not rows.replaced.any()
    assert admit(registry, (0, ONE, True)).admitted.all()
