"""Handlers that block, call back or end their thread hold up no other method."""

import functools
import random
import threading

import numpy as np
import pytest

from embodied import transport

DEADLINE = 60.0
BUSY = 0.01  # seconds


@pytest.mark.parametrize('method', ['f', 'rows'])
def test_a_handler_that_blocks_at_last_holds_up_no_other_method(serve, connect, method):
    never = threading.Event()

    def work(x):
        if np.any(np.asarray(x) < 0):
            never.wait(DEADLINE)
        return x

    server = serve(
        options={'settings': transport.Settings(grace=0.1)},
        f=work,
        rows={'workfn': work, 'batch': 4},
        g=abs,
    )
    client, other = connect(), connect()
    client.call(method, 1).result(DEADLINE)
    stuck = client.call(method, -1)
    queued = client.call(method, 1)
    for caller in (client, other):
        assert caller.call('g', -2).result(DEADLINE) == 2
    assert not stuck.done() and not queued.done()
    server.close()
    never.set()
    for future in (stuck, queued):
        future.add_done_callback(lambda _: None)


@pytest.mark.parametrize('batch', [0, 4])
def test_calls_of_one_client_are_handled_in_order(serve, connect, batch):
    gate, seen, running = threading.Event(), [], threading.Lock()

    def work(x):
        assert running.acquire(blocking=False), 'two at a time'
        seen.extend([int(x)] if not batch else map(int, x))
        if 5 in seen:
            gate.wait(DEADLINE)
        running.release()
        return x

    method = {'workfn': work, **({'batch': batch} if batch else {})}
    serve(f=method, open=gate.set)
    client = connect(maxinflight=32)
    futures = [client.call('f', x) for x in range(20)]
    client.call('open').result(DEADLINE)  # What the blocked handler waits for.
    assert [int(future.result(DEADLINE)) for future in futures] == list(range(20))
    assert seen == list(range(20))


def test_a_handler_may_call_its_own_server(serve, connect):
    nested = []
    serve(f=lambda x: nested[0].call('g', x).result(DEADLINE), g=abs)
    nested.append(connect())
    assert connect().call('f', -3).result(DEADLINE) == 3


@pytest.mark.filterwarnings('ignore::pytest.PytestUnhandledThreadExceptionWarning')
def test_a_handler_that_ends_its_thread_does_not_end_the_server(serve, connect):
    def work(x):
        raise SystemExit

    serve(f=work, g=abs)
    client = connect()
    client.call('f', 1).add_done_callback(lambda _: None)
    assert client.call('g', -2).result(DEADLINE) == 2


@pytest.mark.parametrize('calls', [300, pytest.param(20_000, marks=pytest.mark.long)])
def test_every_call_is_answered_while_some_handlers_are_slow(serve, connect, calls):
    never, names = threading.Event(), ['f', 'g', 'rows', 'ahead']

    def work(wait, x):
        if np.any(wait):
            never.wait(BUSY)
        return x

    serve(
        f=work,
        g={'workfn': work, 'once': True},
        rows={'workfn': work, 'batch': 4},
        ahead={'workfn': work, 'workers': 2},
    )

    def use(name, seed):
        rng, client = random.Random(seed), connect()
        ahead = []
        for number in range(calls):
            future = client.call(name, rng.random() < 0.02, number)
            ahead.append((number, future))
            if len(ahead) > 3 or rng.random() < 0.5:
                for expected, future in ahead:
                    assert future.result(DEADLINE) == expected
                ahead.clear()
        finished.append(name)

    finished = []
    threads = [
        threading.Thread(target=functools.partial(use, name, seed))
        for seed, name in enumerate(2 * names)
    ]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert sorted(finished) == sorted(2 * names)
