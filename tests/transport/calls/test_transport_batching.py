"""Batches form when they are full, when everyone waits, or when time is up."""

import threading

import numpy as np
import pytest

from embodied import transport
from embodied.transport.dispatch.batcher import Batcher
from embodied.transport.dispatch.jobs import Job
from embodied.transport.interface import Request

DEADLINE = 60.0
NEVER = 1000.0


class FakeJob(Job):
    """A job of the queue alone."""

    def __init__(self, client: str, rows: int, arrived: float) -> None:
        self.client = client
        self.arrived = arrived
        self.rows = rows

    @property
    def request(self):
        return Request(self.client, self.client, 0, False, self.rows)

    def load(self):
        raise NotImplementedError

    def seal(self):
        raise NotImplementedError


def serve_two(batcher):
    """Both of its clients are answered."""
    for client in 'ab':
        batcher.add(FakeJob(client, 0, 0.0))
    assert clients_of(batcher.take(0.0)) == ['a', 'b']


def clients_of(jobs):
    return [job.client for job in jobs]


def test_a_full_batch_goes_at_once_and_takes_no_more_than_fits():
    batcher = Batcher(batch=4, max_wait=NEVER)
    batcher.add(FakeJob('idle', 0, 0.0))
    batcher.take(NEVER)  # 'idle' is a user now, so not everyone waits below.
    for client, rows in [('a', 2), ('b', 1), ('c', 2)]:
        assert batcher.take(0.0) == []
        batcher.add(FakeJob(client, rows, 0.0))
    assert clients_of(batcher.take(0.0)) == ['a', 'b']
    assert batcher.take(0.0) == []
    assert clients_of(batcher.take(NEVER)) == ['c']


def test_a_partial_batch_goes_when_all_clients_wait():
    batcher = Batcher(batch=10, max_wait=NEVER)
    serve_two(batcher)
    batcher.add(FakeJob('a', 0, 0.0))
    assert batcher.take(0.0) == []
    batcher.forget('b')
    assert clients_of(batcher.take(0.0)) == ['a']


def test_a_partial_batch_goes_when_its_oldest_row_waited_long_enough():
    batcher = Batcher(batch=10, max_wait=2.0)
    serve_two(batcher)
    assert batcher.deadline() is None
    batcher.add(FakeJob('a', 0, 5.0))
    assert batcher.deadline() == 7.0
    assert batcher.take(6.9) == []
    assert clients_of(batcher.take(7.0)) == ['a']


def test_clients_that_were_just_answered_are_waited_for():
    batcher = Batcher(batch=10, max_wait=2.0)
    serve_two(batcher)
    batcher.add(FakeJob('b', 0, 1.0))
    batcher.free(9.0)  # The call for 'a' took until now.
    assert batcher.deadline() == 11.0
    assert batcher.take(9.0) == []
    batcher.add(FakeJob('a', 0, 9.5))
    assert clients_of(batcher.take(9.5)) == ['b', 'a']


def test_rows_that_came_during_a_call_do_not_wait_for_ever(backend, serve, connect):
    begun, go_on = threading.Event(), threading.Event()

    def work(x):
        begun.set()
        go_on.wait(DEADLINE)
        return x

    batched = {'workfn': work, 'batch': 10, 'max_wait': 0.05}
    serve(transport_=backend, f=batched, g=lambda: 0)
    silent, other = [connect(transport=backend) for _ in range(2)]
    first = silent.call('f', np.int64(1))
    assert begun.wait(DEADLINE)
    second = other.call('f', np.int64(2))
    other.call('g').result(DEADLINE)  # The server has the second request by now.
    go_on.set()
    assert first.result(DEADLINE) == 1
    assert second.result(DEADLINE) == 2


def test_how_long_to_wait_may_change():
    waits = [2.0]
    batcher = Batcher(batch=10, max_wait=lambda: waits[0])
    serve_two(batcher)
    batcher.add(FakeJob('a', 0, 5.0))
    waits[0] = 3.0
    assert batcher.deadline() == 8.0
    assert batcher.take(7.9) == []
    assert clients_of(batcher.take(8.0)) == ['a']


def test_rows_of_many_clients_run_as_one_batch(backend, serve, connect):
    sizes = []

    def work(x, y):
        sizes.append(len(x))
        assert y['z'].shape == (len(x), 3)
        return {'x': x + 1, 'z': y['z']}

    serve(transport_=backend, f={'workfn': work, 'batch': 4})
    clients = [connect(transport=backend) for _ in range(4)]
    clients[0].call('f', np.int64(0), {'z': np.zeros(3)}).result(DEADLINE)
    assert sizes == [1]  # The only user waits, so no other is waited for.
    for _ in range(3):
        args = [(np.int64(i), {'z': np.full(3, i)}) for i in range(4)]
        futures = [c.call('f', *a) for c, a in zip(clients, args, strict=True)]
        for index, future in enumerate(futures):
            result = future.result(DEADLINE)
            assert result['x'] == index + 1
            np.testing.assert_array_equal(result['z'], [index] * 3)
    assert sum(sizes) == 13
    assert max(sizes) <= 4


def test_messages_with_several_rows_get_their_rows_back(backend, serve, connect):
    serve(transport_=backend, f={'workfn': lambda x: x * 10, 'batch': 8})
    clients = [connect(transport=backend) for _ in range(3)]
    for _ in range(3):
        futures = [
            clients[0].call('f', np.arange(3), rows=3),
            clients[1].call('f', np.arange(3, 7), rows=4),
            clients[2].call('f', np.int64(7)),
        ]
        results = [future.result(DEADLINE) for future in futures]
        assert [np.shape(r) for r in results] == [(3,), (4,), ()]
        assert np.concatenate([np.atleast_1d(r) for r in results]).tolist() == [
            *range(0, 80, 10)
        ]


def test_a_client_with_other_shapes_spoils_nothing_for_the_rest(
    backend, serve, connect
):
    def work(x):
        if x.shape[1:] != (2,):
            raise ValueError('unexpected shape')
        return x.sum(1)

    serve(transport_=backend, f={'workfn': work, 'batch': 3})
    good, bad, odd = [connect(transport=backend) for _ in range(3)]
    good.call('f', np.ones(2)).result(DEADLINE)
    for _ in range(2):
        futures = [
            good.call('f', np.ones(2)),
            bad.call('f', np.ones(5)),
            odd.call('f', np.ones(2)),
        ]
        assert futures[0].result(DEADLINE) == 2
        with pytest.raises(transport.RemoteError, match='unexpected shape'):
            futures[1].result(DEADLINE)
        assert futures[2].result(DEADLINE) == 2


@pytest.mark.parametrize(
    'args, rows, words',
    [
        (('text',), 0, 'Only arrays'),
        ((np.zeros((3, 2)),), 2, 'must be the rows'),
        ((np.zeros((9, 2)),), 9, 'does not fit'),
    ],
    ids=['text', 'wrong-rows', 'too-many'],
)
def test_arguments_that_cannot_be_batched_are_refused(
    backend, serve, connect, args, rows, words
):
    serve(transport_=backend, f={'workfn': lambda x: x, 'batch': 4})
    client = connect(transport=backend)
    with pytest.raises(transport.RemoteError, match=words):
        client.call('f', *args, rows=rows).result(DEADLINE)
    assert client.call('f', 3).result(DEADLINE) == 3


def test_results_without_a_row_for_each_are_an_error(backend, serve, connect):
    serve(transport_=backend, f={'workfn': lambda x: x[:0], 'batch': 4})
    client = connect(transport=backend)
    with pytest.raises(transport.RemoteError, match='must be the rows'):
        client.call('f', 3).result(DEADLINE)


def test_batches_have_postfns_and_name_their_requests(backend, serve, connect):
    seen, done = [], threading.Event()

    def work(x):
        return x, [request.rows for request in transport.current_requests()]

    def post(rows):
        seen.append(rows)
        done.set()

    serve(transport_=backend, f={'workfn': work, 'postfn': post, 'batch': 4})
    connect(transport=backend).call('f', np.arange(3), rows=3).result(DEADLINE)
    assert done.wait(DEADLINE)
    assert seen == [[3]]


def test_a_killed_client_does_not_hold_up_the_batch(
    backend, serve, connect, child, addr
):
    serve(
        transport_=backend,
        f={'workfn': lambda x: x, 'batch': 100, 'max_wait': NEVER},
    )
    victim = child('client', addr, 'f', 10, backend)
    assert victim.stdout.readline() == 'ready\n'
    client = connect(transport=backend)
    for _ in range(20):
        client.call('f', np.zeros(10, np.uint8)).result(DEADLINE)
    victim.kill()
    victim.wait()
    for _ in range(20):
        client.call('f', np.zeros(10, np.uint8)).result(DEADLINE)


@pytest.mark.parametrize('rows', [0, 1, 3])
def test_equal_layouts_give_the_same_batch_as_the_general_way(serve, connect, rows):
    """A large array forbids the fast way, so both ways see the same arrays."""
    seen: list = []

    def work(obs):
        seen.append(obs)
        return {'a': obs['a'] * 2, 'nested': (obs['c'], obs['d'].sum(-1))}

    serve(f={'workfn': work, 'batch': 64})
    client = connect()
    rng = np.random.default_rng(0)
    lead = (rows,) if rows else ()
    obs = {
        'a': rng.normal(size=lead).astype(np.float32),
        'c': rng.integers(0, 2, (*lead, 5)).astype(bool),
        'd': rng.integers(0, 256, (*lead, 4, 4, 3)).astype(np.uint8),
    }
    fast = client.call('f', obs, rows=rows).result(DEADLINE)
    big = {**obs, 'large': np.zeros((*lead, 300_000), np.uint8)}
    slow = client.call('f', big, rows=rows).result(DEADLINE)
    for key, array in obs.items():
        for batch in seen:
            assert batch[key].shape == (max(rows, 1), *array.shape[len(lead) :])
            np.testing.assert_array_equal(batch[key].reshape(array.shape), array)
    np.testing.assert_array_equal(fast['a'], obs['a'] * 2)
    np.testing.assert_array_equal(fast['a'], slow['a'])
    for left, right in zip(fast['nested'], slow['nested'], strict=True):
        assert left.dtype == right.dtype and left.shape == right.shape
        np.testing.assert_array_equal(left, right)


def test_only_the_clients_whose_rows_are_refused_get_an_error(serve, connect, backend):
    calls, begun, go = [], threading.Event(), threading.Event()

    def double(x):
        begun.set()
        assert go.wait(DEADLINE)
        calls.append(x.tolist())
        wrong = [row for row, value in enumerate(x) if value < 0]
        if wrong:
            raise transport.RefusedRows(wrong, ValueError('negative'))
        return 2 * x

    bound = {'workfn': double, 'batch': 5, 'max_wait': 0.2}
    serve(transport_=backend, double=bound)
    clients = [connect(transport=backend) for _ in range(3)]
    first = connect(transport=backend).call('double', np.array(0))
    assert begun.wait(DEADLINE)
    rows = [np.array([1, 2]), np.array(-3), np.array([4, 5])]
    futures = [
        client.call('double', x, rows=len(x) if x.ndim else 0)
        for client, x in zip(clients, rows, strict=True)
    ]
    go.set()
    assert first.result(DEADLINE) == 0
    assert futures[0].result(DEADLINE).tolist() == [2, 4]
    assert futures[2].result(DEADLINE).tolist() == [8, 10]
    with pytest.raises(transport.RemoteError, match='negative') as error:
        futures[1].result(DEADLINE)
    assert (error.value.kind, error.value.reason) == ('ValueError', 'negative')
    assert [sorted(call) for call in calls] == [[0], [-3, 1, 2, 4, 5], [1, 2, 4, 5]]
