"""Nothing is lost when a side restarts, and repeats are seen as such."""

import signal
import threading

import internals
import numpy as np
import pytest
from raw_client import answer, raw_client, shake_hands, stop

from embodied import transport
from embodied.transport.codec import frames as wire
from embodied.transport.codec.encoding import pack, unpack_value

DEADLINE = 60.0


def started(process):
    assert process.stdout.readline() == 'ready\n'
    return process


def test_order_of_starting_does_not_matter(backend, child, connect, addr):
    client = connect(transport=backend, wait=False)
    future = client.call('echo', np.arange(3))
    started(child('server', addr, backend))
    np.testing.assert_array_equal(future.result(DEADLINE), [0, 1, 2])


def test_a_server_killed_under_load_loses_nothing(backend, child, connect, addr):
    server = started(child('server', addr, backend))
    client = connect(transport=backend, maxinflight=32)
    results, repeats = [], 0
    futures = []
    for index in range(600):
        if index in (190, 390):
            futures[-1].result(DEADLINE)
            stop(server)  # The next calls certainly have to be repeated.
        futures.append(client.call('count', np.int64(index)))
        if index in (200, 400):
            server.kill()
            server.wait()
            server = started(child('server', addr, backend))
    for future in futures:
        answer = future.result(DEADLINE)
        results.append(int(answer['x']))
        repeats += int(answer['repeat'])
        # Not served twice by one process unless the handler could see it.
        assert answer['times'] == 1 or answer['repeat'] or backend == 'portal'
    assert results == list(range(600))
    if backend == 'native':
        assert repeats > 0


def test_large_arrays_are_sent_again_after_a_restart(child, connect, addr):
    server = started(child('server', addr))
    client = connect()
    array = np.random.default_rng(0).integers(0, 256, 3_000_000).astype(np.uint8)
    np.testing.assert_array_equal(client.call('echo', array).result(DEADLINE), array)
    stop(server)
    futures = [client.call('echo', array) for _ in range(3)]
    server.kill()
    server.wait()
    started(child('server', addr))
    for future in futures:
        np.testing.assert_array_equal(future.result(DEADLINE), array)


def test_an_answer_that_died_with_its_server_is_asked_for_again(child, connect, addr):
    """Its arrays lie in memory of a process that is gone when it is read."""
    server = started(child('server', addr))
    client = connect()
    array = np.arange(3_000_000, dtype=np.uint8)
    future = client.call('posted', array)
    assert server.stdout.readline() == 'posted\n'
    server.kill()
    server.wait()
    started(child('server', addr))
    np.testing.assert_array_equal(future.result(DEADLINE), array)


def test_without_resend_a_lost_server_ends_the_calls(backend, child, connect, addr):
    server = started(child('server', addr, backend))
    client = connect(transport=backend, resend=False)
    stop(server)
    futures = [client.call('echo', 1), client.call('echo', 2)]
    server.kill()
    server.wait()
    for future in futures:
        with pytest.raises(transport.Disconnected):
            future.result(DEADLINE)


def test_a_repeated_request_gets_the_stored_reply(serve, connect):
    served, entered, release = [], threading.Event(), threading.Event()

    def work(x):
        served.append(int(x))
        entered.set()
        release.wait(DEADLINE)
        return x + 1

    server = serve(f={'workfn': work, 'once': True}, g=lambda: 0)
    client = connect()
    future = client.call('f', 1)
    assert entered.wait(DEADLINE)
    internals.disconnect(client)
    # A second client sees that the server got the repeat of the first one.
    client.call('g').result(DEADLINE)
    release.set()
    assert future.result(DEADLINE) == 2
    assert served == [1]
    assert internals.clients(server) == 1


def test_replies_that_were_lost_are_stored_for_the_repeat(serve, addr):
    served = []

    def work(x):
        served.append(x)
        return 10 * x

    serve(f={'workfn': work, 'once': True})
    request = pack(wire.Kind.REQUEST, (5,), 1, b'f')
    for _ in range(3):
        # Every connection is a new one, the session stays the same.
        with raw_client(addr) as sock:
            shake_hands(sock, session=b'0123456789abcdef')
            sock.send_multipart(request.frames(wire.REPEAT, mark=1))
            reply = answer(sock)
            assert (reply.kind, reply.number) == (wire.Kind.REPLY, 1)
            assert unpack_value(reply) == 50
    assert served == [5]


def test_stored_replies_are_forgotten_once_read(serve, connect):
    server = serve(f={'workfn': lambda x: x, 'once': True})
    client = connect(maxinflight=4)
    for index in range(100):
        client.call('f', index).result(DEADLINE)
    assert internals.stored_replies(server) <= 4


def test_a_new_client_is_a_new_session(serve, connect):
    serve(f={'workfn': lambda: transport.current_requests()[0].client, 'once': True})
    first, second = connect(), connect()
    assert first.call('f').result(DEADLINE) == first.call('f').result(DEADLINE)
    assert first.call('f').result(DEADLINE) != second.call('f').result(DEADLINE)


def test_batched_methods_answer_repeats_too(serve, connect):
    rows = []

    def work(x):
        rows.extend(x.tolist())
        return x

    serve(f={'workfn': work, 'batch': 4, 'once': True}, g=lambda: 0)
    client = connect()
    assert client.call('f', 3).result(DEADLINE) == 3
    future = client.call('f', 4)
    internals.disconnect(client)
    assert future.result(DEADLINE) == 4
    assert rows == [3, 4]


def test_the_last_reply_of_a_server_is_not_lost(addr):
    for size in (10, 300_000):
        settings = transport.Settings(slab_bytes=0, grace=DEADLINE)
        options = {'settings': settings}
        for _ in range(10):
            server = transport.Server(addr, **options)
            entered = threading.Event()
            server.bind('f', lambda size, e=entered: (e.set(), np.zeros(size))[1])
            server.start(block=False)
            with transport.Client(addr, resend=False, **options) as client:
                client.connect(DEADLINE)
                future = client.call('f', size)
                assert entered.wait(DEADLINE)
                closing = threading.Thread(target=server.close)
                closing.start()
                assert len(future.result(DEADLINE)) == size
                closing.join()


def test_replies_that_came_before_the_end_of_a_connection_count(addr):
    for _ in range(5):
        server, served, entered = transport.Server(addr), [], threading.Event()

        def work(x, served=served, entered=entered):
            served.append(x)
            entered.set()
            return x

        server.bind('f', work)
        server.start(block=False)
        with transport.Client(addr, resend=False) as client:
            client.connect(DEADLINE)
            futures = [client.call('f', index) for index in range(10)]
            assert entered.wait(DEADLINE)
            server.close()  # No thread of the client has read a reply by now.
            assert [answered(future) for future in futures].count(True) == len(served)


def answered(future):
    try:
        future.result(DEADLINE)
    except transport.Disconnected:
        return False
    return True


def test_interrupting_a_wait_ends_it(serve, child, addr):
    release = threading.Event()
    serve(stuck=lambda: release.wait(DEADLINE))
    process = started(child('interrupted', addr))
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == 'interrupted\n'
    release.set()
    assert process.wait(DEADLINE) == 0


def test_what_a_failing_server_leaves_unanswered_is_asked_of_the_next_one(
    backend, serve, connect
):
    asked = threading.Event()

    def fail(*args):
        asked.set()
        raise transport.Unanswered('The server is about to end.')

    single = {'workfn': fail, 'once': True}
    batched = {'workfn': fail, 'batch': 2, 'once': True}
    server = serve(transport_=backend, one=single, many=batched)
    client = connect(transport=backend)
    futures = [client.call('one', np.arange(2)), client.call('many', np.arange(2))]
    assert asked.wait(DEADLINE)
    with pytest.raises(transport.Timeout):
        futures[0].result(0.2)
    server.close()
    double = lambda x: 2 * x
    serve(transport_=backend, one=double, many={'workfn': double, 'batch': 2})
    for future in futures:
        np.testing.assert_array_equal(future.result(DEADLINE), [0, 2])
