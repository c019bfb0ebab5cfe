"""Calls behave the same through every backend."""

import errno
import pickle
import threading

import numpy as np
import pytest

from embodied import transport
from embodied.core.errors import ConfigError, StorageError
from embodied.transport import addresses

DEADLINE = 60.0


def test_a_call_returns_what_the_handler_returned(backend, serve, connect):
    serve(transport_=backend, add=lambda a, b: {'sum': a + b, 'name': 'x'})
    client = connect(transport=backend)
    result = client.call('add', np.arange(3), np.ones(3, int)).result(DEADLINE)
    np.testing.assert_array_equal(result['sum'], [1, 2, 3])
    assert result['name'] == 'x'


def test_arrays_arrive_read_only_and_large_ones_complete(backend, serve, connect):
    seen = []
    serve(transport_=backend, echo=lambda x: seen.append(x.flags.writeable) or x)
    client = connect(transport=backend)
    for size in (10, 100_000, 5_000_000):
        array = np.random.default_rng(size).integers(0, 256, size).astype(np.uint8)
        result = client.call('echo', array).result(DEADLINE)
        np.testing.assert_array_equal(result, array)
        assert not result.flags.writeable
    assert seen == [False] * 3


def test_many_calls_in_flight_get_their_own_answers(backend, serve, connect):
    serve(transport_=backend, double=lambda x: 2 * x)
    client = connect(transport=backend, maxinflight=8)
    futures = [client.call('double', np.int64(i)) for i in range(100)]
    assert [int(f.result(DEADLINE)) for f in futures] == list(range(0, 200, 2))


def test_threads_share_a_client(backend, serve, connect):
    serve(transport_=backend, double={'workfn': lambda x: 2 * x, 'workers': 2})
    client = connect(transport=backend, maxinflight=3)
    results: dict[int, list[int]] = {}

    def work(index):
        answers = [client.call('double', np.int64(1000 * index + i)) for i in range(30)]
        results[index] = [int(a.result(DEADLINE)) for a in answers]

    # More than the client's slots: futures are asked for only after 30 calls, so the
    # threads depend on each other reading.
    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    [thread.start() for thread in threads]
    [thread.join(DEADLINE) for thread in threads]
    for index in range(6):
        assert results[index] == [2 * (1000 * index + i) for i in range(30)]


def test_a_failing_handler_sends_its_traceback_and_goes_on(backend, serve, connect):
    def divide(a, b):
        return int(a) // int(b)

    serve(transport_=backend, divide=divide)
    client = connect(transport=backend)
    with pytest.raises(transport.RemoteError, match='ZeroDivisionError') as info:
        client.call('divide', 1, 0).result(DEADLINE)
    assert 'in divide' in info.value.traceback
    assert client.call('divide', 6, 3).result(DEADLINE) == 2


def full_disk():
    raise OSError(errno.ENOSPC, 'No space left on device')


def cannot_save():
    try:
        full_disk()
    except OSError as error:
        raise StorageError('The chunk cannot be written.') from error


def wrong_type():
    raise TypeError('Not\nthis one')


def relayed():
    raise transport.RemoteError('OSError: full', errno=errno.ENOSPC)


@pytest.mark.parametrize(
    ('handler', 'kind', 'reason', 'number'),
    [
        (full_disk, 'OSError', '[Errno 28] No space left on device', errno.ENOSPC),
        (cannot_save, 'StorageError', 'The chunk cannot be written.', errno.ENOSPC),
        (relayed, 'RemoteError', 'OSError: full', errno.ENOSPC),
        (wrong_type, 'TypeError', 'Not\nthis one', None),
    ],
)
def test_an_error_tells_its_kind_its_message_and_the_errno_of_its_cause(
    backend, serve, connect, handler, kind, reason, number
):
    serve(transport_=backend, f=handler)
    with pytest.raises(transport.RemoteError) as info:
        connect(transport=backend).call('f').result(DEADLINE)
    error = info.value
    assert (error.kind, error.reason, error.errno) == (kind, reason, number)
    assert str(error).startswith(f'{kind}: {reason}')
    assert error.traceback.startswith('Traceback')
    copy = pickle.loads(pickle.dumps(error))
    assert vars(copy) == vars(error) and str(copy) == str(error)


def test_an_unknown_method_is_an_error_of_the_caller(backend, serve, connect):
    serve(transport_=backend, f=lambda: 1)
    client = connect(transport=backend)
    with pytest.raises(transport.RemoteError, match='no method'):
        client.call('g').result(DEADLINE)
    assert client.call('f').result(DEADLINE) == 1


def test_an_answer_that_cannot_be_sent_is_an_error(backend, serve, connect):
    serve(transport_=backend, f=lambda: object())
    client = connect(transport=backend)
    with pytest.raises(transport.RemoteError, match='[Cc]annot'):
        client.call('f').result(DEADLINE)


def test_postfns_run_in_the_order_of_requests(backend, serve, connect):
    seen, finished = [], threading.Event()
    late = threading.Event()

    def work(x):
        if x == 0:
            late.wait(DEADLINE)  # The first request is the last to be answered.
        elif x == 9:
            late.set()
        return x, int(x)

    def post(info):
        seen.append(info)
        if len(seen) == 10:
            finished.set()

    serve(transport_=backend, f={'workfn': work, 'postfn': post, 'workers': 9})
    client = connect(transport=backend)
    [future.result(DEADLINE) for future in [client.call('f', i) for i in range(10)]]
    assert finished.wait(DEADLINE)
    assert seen == list(range(10))


def test_replies_do_not_wait_for_their_postfn(backend, serve, connect):
    release = threading.Event()
    post = lambda info: release.wait(DEADLINE)
    serve(transport_=backend, f={'workfn': lambda: (1, 2), 'postfn': post})
    client = connect(transport=backend)
    assert client.call('f').result(DEADLINE) == 1
    release.set()


def test_a_slow_postfn_holds_up_its_method_but_no_other(backend, serve, connect):
    release = threading.Event()
    post = lambda info: release.wait(DEADLINE)
    serve(
        transport_=backend,
        slow={'workfn': lambda: (1, None), 'postfn': post},
        quick=lambda: 3,
    )
    client = connect(transport=backend)
    futures = [client.call('slow') for _ in range(5)]
    [future.result(DEADLINE) for future in futures[:2]]  # one worker and one slot
    assert client.call('quick').result(DEADLINE) == 3
    assert not futures[2].done()
    release.set()
    [future.result(DEADLINE) for future in futures]


def test_a_failing_postfn_is_raised_where_the_server_waits(backend, serve, connect):
    def post(info):
        raise ValueError('lost transition')

    server = serve(transport_=backend, f={'workfn': lambda: (1, 2), 'postfn': post})
    client = connect(transport=backend)
    assert client.call('f').result(DEADLINE) == 1
    with pytest.raises(ValueError, match='lost transition'):
        server.wait(DEADLINE)


def test_callbacks_run_without_anybody_waiting(backend, serve, connect):
    serve(transport_=backend, f=lambda x: x)
    client = connect(transport=backend)
    seen, arrived = [], threading.Event()

    def note(future):
        seen.append(int(future.result()))
        arrived.set()

    client.call('f', 5).add_done_callback(note)
    assert arrived.wait(DEADLINE)
    assert seen == [5]


def test_the_error_of_a_forgotten_future_is_raised_by_the_next_call(
    backend, serve, connect
):
    def fail():
        raise ValueError('not asked for')

    serve(transport_=backend, fail=fail, f=lambda: 1)
    client = connect(transport=backend)
    client.call('fail')
    client.call('f').result(
        DEADLINE
    )  # One worker each, yet the answers are read in turn.
    with pytest.raises(transport.RemoteError, match='not asked for'):
        for _ in range(1000):
            client.call('f').result(DEADLINE)


def test_results_time_out_and_can_be_waited_for_again(backend, serve, connect):
    release = threading.Event()
    serve(transport_=backend, f=lambda: release.wait(DEADLINE))
    client = connect(transport=backend)
    future = client.call('f')
    with pytest.raises(transport.Timeout):
        future.result(0.05)
    assert not future.done()
    release.set()
    assert future.result(DEADLINE)


def test_a_wait_that_times_out_passes_the_reading_on(backend, serve, connect):
    """No lost wake-ups: the thread that reads for all may leave at any moment."""
    first, second = threading.Event(), threading.Event()
    serve(
        transport_=backend,
        f=lambda: first.wait(DEADLINE),
        g=lambda: second.wait(DEADLINE),
    )
    client = connect(transport=backend)
    impatient, patient = client.call('f'), client.call('g')
    started, answers = threading.Event(), []

    def leave_soon():
        started.set()
        with pytest.raises(transport.Timeout):
            impatient.result(0.3)
        second.set()

    reader = threading.Thread(target=leave_soon)
    reader.start()
    assert started.wait(DEADLINE)
    follower = threading.Thread(target=lambda: answers.append(patient.result()))
    follower.start()
    for thread in (reader, follower):
        thread.join(DEADLINE)
    assert answers == [True]
    first.set()
    assert impatient.result(DEADLINE)


def test_calls_end_at_their_deadline(backend, serve, connect):
    release = threading.Event()
    serve(transport_=backend, f=lambda: release.wait(DEADLINE), g=lambda: 1)
    client = connect(transport=backend, timeout=0.2, maxinflight=1)
    with pytest.raises(transport.Timeout):
        client.call('f').result()
    release.set()
    slow = connect(transport=backend, timeout=DEADLINE)
    assert slow.call('g').result() == 1


def test_connecting_without_a_server_times_out(backend, connect):
    client = connect(transport=backend, wait=False)
    with pytest.raises(transport.Timeout):
        client.connect(0.2)
    assert not client.connected


def test_maxinflight_holds_the_caller_back(backend, serve, connect):
    release = threading.Event()
    serve(transport_=backend, f=lambda: release.wait(DEADLINE))
    client = connect(transport=backend, maxinflight=2)
    futures = [client.call('f'), client.call('f')]
    third: list = []
    caller = threading.Thread(target=lambda: third.append(client.call('f')))
    caller.start()
    caller.join(0.2)
    assert caller.is_alive() and not third
    release.set()
    caller.join(DEADLINE)
    assert all(future.result(DEADLINE) for future in (*futures, *third))


def test_closing_ends_every_wait_at_once(backend, serve, connect):
    release, started = threading.Event(), threading.Semaphore(0)
    serve(transport_=backend, f=lambda: release.wait(DEADLINE))
    client = connect(transport=backend, maxinflight=2)
    errors = []
    futures = [client.call('f'), client.call('f')]

    def wait(fn):
        started.release()
        try:
            fn()
        except transport.Disconnected as e:
            errors.append(e)

    waits = [
        futures[0].result,
        futures[1].result,
        lambda: client.call('f'),
    ]
    threads = [threading.Thread(target=wait, args=(fn,)) for fn in waits]
    [thread.start() for thread in threads]
    [started.acquire() for _ in threads]
    client.close()
    [thread.join(DEADLINE) for thread in threads]
    release.set()
    assert len(errors) == 3
    with pytest.raises(transport.Disconnected):
        client.call('f')


def test_a_taken_address_is_said(backend, serve, connect, addr):
    serve(transport_=backend, f=lambda: 1)
    second = transport.Server(addr, transport=backend)
    with pytest.raises(transport.AddressInUse, match='cannot listen') as info:
        second.start(block=False)
    assert addresses.parse(info.value.address) == addresses.parse(addr)
    assert connect(transport=backend).call('f').result(DEADLINE) == 1


@pytest.mark.parametrize(
    'bind, words',
    [
        ({'workers': -1}, 'at least one worker'),
        ({'workers': 0, 'postfn': print}, 'at least one worker'),
    ],
    ids=str,
)
def test_settings_that_cannot_work_are_refused(backend, addr, bind, words):
    server = transport.Server(addr, transport=backend)
    with pytest.raises(ConfigError, match=words):
        server.bind('f', print, **bind)
    server.bind('g', print)
    with pytest.raises(ConfigError, match='once'):
        server.bind('g', print)


def test_unknown_backends_are_named(addr):
    with pytest.raises(ConfigError, match='native'):
        transport.Server(addr, transport='smoke')
    with pytest.raises(ConfigError, match='native'):
        transport.Client(addr, transport='smoke')


def test_messages_beyond_the_limit_are_refused_where_they_are_made(serve, connect):
    options = {'settings': transport.Settings(max_message=1_000_000, slab_bytes=0)}
    serve(options=options, make=lambda size: np.zeros(int(size), np.uint8))
    client = connect(**options)
    with pytest.raises(transport.MessageError, match='split it'):
        client.call('make', np.zeros(1_000_001, np.uint8))
    with pytest.raises(transport.RemoteError, match='split it'):
        client.call('make', 1_000_001).result(DEADLINE)
    assert len(client.call('make', 1_000_000).result(DEADLINE)) == 1_000_000
    for method, rows in (('x' * 100, 0), ('make', -1)):
        with pytest.raises(transport.MessageError, match='Not a method'):
            client.call(method, rows=rows)
