"""The Agent runs any Model: order of outputs, random numbers, threads, checkpoints."""

import copy
import threading
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from comparing import assert_same
from toy_model import Toy, batch

import embodied.jax
from embodied.core.errors import CheckpointError, NonFiniteError

OBS = {'x': np.zeros((2, 3), np.float32), 'is_first': np.zeros(2, bool)}


def make(seed=0, **kwargs):
    return embodied.jax.Agent(Toy(), seed, **kwargs)


def train(agent, seeds):
    carry = agent.init_train(2)
    for seed in seeds:
        carry, outs, metrics = agent.train(carry, batch(seed))
    return outs, metrics


def values(agent):
    """Everything that training changes, by name."""
    return agent.state


# Learning


def test_outputs_of_training_belong_to_the_call_before():
    agent = make()
    carry = agent.init_train(2)
    carry, outs, metrics = agent.train(carry, batch(0))
    assert (outs, metrics) == ({}, {})
    for update in range(1, 4):
        carry, outs, metrics = agent.train(carry, batch(update))
        trained = batch(update - 1)['x'][:, Toy.context :]
        np.testing.assert_array_equal(outs['replay']['dyn/x'], 2 * trained)
        assert metrics['steps'] == update - 1
    assert np.all(np.asarray(carry) == 4)
    assert agent.updates == 4


def test_a_measurement_gets_an_array_of_each_update_when_it_begins():
    agent, seen = make(), []
    agent.on_update = seen.append
    carry = agent.init_train(4)
    for step in range(2):
        carry, *_ = agent.train(carry, batch(step))
    assert len(seen) == 2
    for array in seen:
        assert np.isfinite(array.block_until_ready()).all()


def test_an_update_knows_whether_the_one_before_is_over():
    agent, seen = make(), []
    agent.on_update = seen.append
    carry, *_ = agent.train(agent.init_train(4), batch(0))
    assert agent.idle  # the first one
    seen[0].block_until_ready()
    carry, *_ = agent.train(carry, batch(1))
    assert agent.idle
    seen[1].block_until_ready()
    slow = jax.jit(lambda x: jax.lax.fori_loop(0, 500, lambda _, x: x @ x, x))
    long = slow.lower(jnp.eye(512)).compile()
    agent._pending = agent._pending._replace(losses=long(jnp.eye(512)))
    agent.train(carry, batch(2))
    assert not agent.idle


def test_written_back_steps_are_the_trained_ones():
    outs, _ = train(make(), [0, 1])
    expected = batch(0)['stepid'][:, Toy.context :]
    np.testing.assert_array_equal(outs['replay']['stepid'], expected)
    lead = {v.shape[:2] for v in outs['replay'].values()}
    assert lead == {(2, 3)}


def test_outputs_are_host_arrays():
    outs, metrics = train(make(), [0, 1])
    assert all(type(x) is np.ndarray for x in outs['replay'].values())
    assert all(isinstance(x, np.float32) for x in metrics.values())


def test_streams_move_what_the_model_reads_and_pass_on_the_rest():
    agent = make()
    moved = list(agent.stream(iter([batch(0), batch(1)])))
    assert len(moved) == 2
    assert isinstance(moved[1]['stepid'], np.ndarray)
    assert 'x' not in moved[1]  # The host need not keep what the device has.
    on_device = [x for x in jax.tree.leaves(moved[1]) if isinstance(x, jax.Array)]
    assert {x.shape for x in on_device} == {batch(1)[k].shape for k in 'xy'}
    agent.train(agent.init_train(2), moved[0])


def test_batches_in_one_transfer_train_the_same(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(jax, 'default_backend', lambda: 'gpu')
        joining = make()
    joining.prepare(2, 3, 0)
    moved = list(joining.stream(iter([batch(0), batch(1)])))
    sent = [x for x in jax.tree.leaves(moved[0]) if isinstance(x, jax.Array)]
    assert [(x.ndim, x.dtype) for x in sent] == [(1, np.uint8)]
    carry = joining.init_train(2)
    for each in (*moved, batch(2)):  # the last one without a stream
        carry, *_ = joining.train(carry, each)
    assert [x.program for x in joining.compiled] == ['train']
    plain = make()
    train(plain, range(3))
    assert_same(values(plain), values(joining))


@pytest.mark.parametrize(('other', 'same'), [(0, True), (1, False)])
def test_parameters_depend_on_nothing_but_seed_and_batches(other, same):
    one, two = make(0), make(other)
    train(one, range(3))
    train(two, range(3))
    equal = all(np.array_equal(values(one)[k], values(two)[k]) for k in values(one))
    assert equal == same


def test_acting_and_reports_do_not_disturb_training():
    quiet, busy = make(), make()
    train(quiet, range(4))
    carry = busy.init_train(2)
    for seed in range(4):
        carry, *_ = busy.train(carry, batch(seed))
        busy.policy(busy.init_policy(2), OBS)
        busy.report(busy.init_report(2), batch(9))
    assert_same(values(quiet), values(busy))


def test_state_is_passed_to_the_device_as_a_flat_list():
    # Dispatch costs microseconds for a list of arrays, milliseconds for modules.
    agent = make()
    assert type(agent._state) is list
    assert all(isinstance(x, jax.Array) for x in agent._state)


# Acting


def test_policy_follows_training_with_the_newest_parameters():
    agent = make(eval_greedy=True)
    for seed in range(3):
        train(agent, [seed])
        _, acts, _ = agent.policy(agent.init_policy(2), OBS, 'eval')
        np.testing.assert_allclose(acts['act'][0], agent.params['mean'], rtol=1e-6)


@pytest.mark.parametrize(
    ('eval_greedy', 'mode', 'greedy'),
    [
        (False, 'train', False),
        (False, 'eval', False),
        (True, 'train', False),
        (True, 'eval', True),
    ],
)
def test_only_evaluation_is_greedy_and_only_on_request(eval_greedy, mode, greedy):
    agent = make(eval_greedy=eval_greedy)
    acts = [agent.policy(agent.init_policy(2), OBS, mode)[1] for _ in range(2)]
    assert np.array_equal(acts[0]['act'], acts[1]['act']) == greedy


def test_carries_go_in_and_come_out():
    agent = make()
    first = agent.init_policy(2)
    second, _, outs = agent.policy(first, OBS)
    assert not np.any(first)
    assert np.all(np.asarray(second) == 1)
    np.testing.assert_array_equal(outs['seen'], OBS['x'])


def test_rows_of_a_table_are_carried_like_single_carries():
    agent, same = make(), make()
    table = agent.init_table(4)
    for rows in ([1, 3], [3, 1], [3, 0]):
        table, acts, outs = agent.policy_rows(table, np.array(rows), OBS)
        _, expected, _ = same.policy(same.init_policy(2), OBS)
        np.testing.assert_array_equal(acts['act'], expected['act'])
        np.testing.assert_array_equal(outs['seen'], OBS['x'])
    # The toy's carry counts the calls of each row.
    np.testing.assert_array_equal(np.asarray(table)[:, 0], [1, 2, 0, 3])


def test_a_table_can_grow_and_shrink():
    agent = make()
    table = agent.init_table(3)
    for room, rows in ((3, [1, 2]), (6, [2, 5]), (4, [1, 3]), (6, [2, 4])):
        table = agent.resize_table(table, room)
        table, *_ = agent.policy_rows(table, np.array(rows), OBS)
        assert len(table) == room
    # What new rows hold is arbitrary: rows start with an episode.
    np.testing.assert_array_equal(np.asarray(table)[1:3, 0], [2, 3])


def test_the_snapshot_for_acting_shares_no_buffer_with_the_donated_state():
    agent = make()
    for seed in range(3):
        before = agent._snapshot
        pointers = {x.unsafe_buffer_pointer() for x in agent._state}
        assert not pointers & {x.unsafe_buffer_pointer() for x in before}
        train(agent, [seed])
        assert not any(x.is_deleted() for x in before)


def test_acting_and_learning_run_in_two_threads():
    agent, alone = make(), make()
    started, done = threading.Event(), threading.Event()

    def act():
        carry = agent.init_policy(2)
        while not done.is_set():
            carry, acts, _ = agent.policy(carry, OBS)
            assert np.all(np.isfinite(acts['act']))
            started.set()

    with ThreadPoolExecutor() as pool:
        acting = pool.submit(act)
        started.wait(60)
        train(agent, range(200))
        done.set()
        acting.result()
    assert started.is_set()
    train(alone, range(200))
    assert_same(values(agent), values(alone))


# Reports


def test_reports_hold_scalars_and_pictures():
    agent = make()
    carry, metrics = agent.report(agent.init_report(2), batch())
    assert isinstance(metrics['noise'], np.float32)
    assert metrics['picture'].shape == (4, 4, 3)
    assert np.all(np.asarray(carry) == 1)


# Non-finite losses


def test_a_bad_loss_is_reported_by_name_and_update_and_changes_nothing():
    agent = make()
    carry = agent.init_train(2)
    for seed in range(3):
        carry, *_ = agent.train(carry, batch(seed))
    before = values(agent)
    bad = batch(3)
    bad['x'][0, 4, 1] = np.nan
    agent.train(carry, bad)
    assert_same(values(agent), before)
    with pytest.raises(NonFiniteError, match=r"'zeta' became nan in update 4"):
        agent.train(carry, batch(4))


def test_a_bad_update_is_never_saved():
    # A run that resumes from it would fail in its first update, each time.
    agent = make()
    bad = batch(0)
    bad['x'][:] = np.nan
    agent.train(agent.init_train(2), bad)
    with pytest.raises(NonFiniteError, match=r"'zeta' became nan in update 1"):
        agent.save()


def test_a_bad_update_never_reaches_a_checkpoint():
    agent = make()
    bad = batch(0)
    bad['x'][:] = np.nan
    agent.train(agent.init_train(2), bad)
    with pytest.raises(NonFiniteError, match='update 1'):
        agent.save()


def test_the_first_of_several_bad_losses_is_named():
    agent = make()
    bad = batch(0)
    bad['x'][:], bad['y'][:] = np.inf, np.nan
    agent.train(agent.init_train(2), bad)
    with pytest.raises(NonFiniteError, match="'zeta'"):
        agent.train(agent.init_train(2), batch(1))


def test_acting_goes_on_with_the_parameters_of_before():
    agent = make(eval_greedy=True)
    bad = batch(0)
    bad['x'][:] = np.nan
    agent.train(agent.init_train(2), bad)
    _, acts, _ = agent.policy(agent.init_policy(2), OBS, 'eval')
    assert np.all(np.isfinite(acts['act']))


def test_acting_on_a_device_of_its_own_gives_the_same_actions():
    agent, same = make(policy_device=jax.devices('cpu')[0]), make()
    train(agent, range(2))
    train(same, range(2))
    table = agent.init_table(3)
    table, acts, _ = agent.policy_rows(table, np.array([1, 2]), OBS)
    _, expected, _ = same.policy_rows(same.init_table(3), np.array([1, 2]), OBS)
    np.testing.assert_array_equal(acts['act'], expected['act'])


def test_programs_that_were_prepared_are_the_ones_that_run():
    agent = make()
    agent.prepare(2, 3, 3)
    train(agent, range(2))
    agent.report(agent.init_report(2), batch(9))
    assert sorted(x.program for x in agent.compiled) == ['report', 'train']


# Checkpoints


def test_a_loaded_agent_continues_exactly():
    original = make()
    train(original, range(3))
    original.policy(original.init_policy(2), OBS)
    twin = make()
    twin.load(original.save())
    assert twin.updates == 3
    # The first outputs after loading are those that were pending when it was saved.
    outs, metrics = train(original, [7])
    outs_twin, metrics_twin = train(twin, [7])
    assert_same(outs['replay'], outs_twin['replay'])
    assert metrics == metrics_twin
    assert_same(values(original), values(twin))
    acts, acts_twin = (x.policy(x.init_policy(2), OBS)[1] for x in (original, twin))
    assert_same(acts, acts_twin)


def test_an_agent_that_never_trained_can_be_saved():
    agent = make(seed=1)
    agent.load(make().save())
    assert_same(values(agent), values(make()))
    assert train(agent, [0]) == ({}, {})


def test_saved_data_does_not_follow_training():
    agent = make()
    train(agent, range(2))
    saved = agent.save()
    frozen = copy.deepcopy(saved)
    train(agent, range(5))
    jax.tree.map(np.testing.assert_array_equal, saved, frozen)


def test_saved_data_is_plain_host_data():
    agent = make()
    train(agent, range(2))
    leaves = jax.tree.leaves(agent.save())
    assert all(isinstance(x, np.ndarray | np.generic | int) for x in leaves)


def test_loading_by_regex_changes_only_matching_parameters():
    source, target = make(0), make(1)
    train(source, range(3))
    before = values(target)
    target.load(source.save(), regex=r'params\.mean')
    after = values(target)
    changed = {k for k in after if not np.array_equal(after[k], before[k])}
    assert changed == {'params.mean'}
    np.testing.assert_array_equal(after['params.mean'], values(source)['params.mean'])
    assert target.updates == 0
    _, acts, _ = target.policy(target.init_policy(2), OBS)
    assert acts['act'].shape == (2, 3)


def test_a_checkpoint_of_another_size_is_refused_and_changes_nothing():
    agent = make()
    before = values(agent)
    data = make(seed=1).save()
    data['state']['params.mean'] = np.zeros(7, np.float32)
    with pytest.raises(CheckpointError, match=r'params.mean: \(7,\)'):
        agent.load(data)
    assert_same(values(agent), before)
