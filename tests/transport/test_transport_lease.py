"""The loop of a server runs in the worker of a busy method, and comes back from it."""

import functools
import random
import threading

import numpy as np
import pytest

from embodied import transport
from embodied.transport import lease
from embodied.transport.loop import Loop

DEADLINE = 60.0
MOST_CALLS = 200_000  # until the loop has moved; some hundred on a quiet machine


def thread_name():
    return threading.current_thread().name


WHERE = {'workfn': thread_name, 'workers': 0}  # runs where the loop does


def call_until_at(client, method, *args):
    """Calls a method until its worker runs the loop."""
    for _ in range(MOST_CALLS):
        client.call(method, *args).result(DEADLINE)
        if client.where().result(DEADLINE).endswith(f'-{method}-0'):
            return
    raise AssertionError(f'The worker of {method} never got the loop.')


def test_the_loop_follows_the_calls_and_handlers_keep_their_threads(serve, connect):
    seen = []
    note = lambda x: seen.append(thread_name()) or x
    serve(where=WHERE, f=note, g=note, rows={'workfn': note, 'batch': 4})
    client = connect()
    assert client.where().result(DEADLINE).endswith('-io')
    for method in ('f', 'rows', 'g', 'f'):
        seen.clear()
        call_until_at(client, method, 1)
        assert {name.rpartition('Server-')[2] for name in seen} == {f'{method}-0'}


def test_methods_that_may_wait_never_get_the_loop(serve, connect):
    serve(
        where=WHERE,
        wide={'workfn': lambda: 1, 'workers': 2},
        told={'workfn': lambda: (1, None), 'postfn': lambda _: None},
    )
    client = connect()
    for _ in range(3 * lease.FIRST_RUN):
        client.wide().result(DEADLINE)
        client.told().result(DEADLINE)
        assert client.where().result(DEADLINE).endswith('-io')


@pytest.mark.parametrize('method', ['f', 'rows'])
def test_a_handler_that_blocks_at_last_holds_up_nobody_else(
    child, connect, addr, method
):
    server = child('lender', addr)
    assert server.stdout.readline() == 'ready\n'
    client, other = connect(), connect()
    call_until_at(client, method, 1)
    stuck = client.call(method, -1)
    queued = client.call(method, 1)
    for caller in (client, other):
        assert caller.g(2).result(DEADLINE) == 2
        assert caller.where().result(DEADLINE).endswith('-io')
    assert not stuck.done() and not queued.done()
    server.stdin.write('close\n')
    server.stdin.flush()
    assert server.stdout.readline() == 'closed\n'
    for future in (stuck, queued):
        future.add_done_callback(lambda _: None)


@pytest.mark.parametrize('batch', [0, 4])
def test_calls_stay_in_order_when_the_loop_is_taken_back(serve, connect, batch):
    gate, seen, running = threading.Event(), [], threading.Lock()

    def work(x):
        assert running.acquire(blocking=False), 'two at a time'
        seen.extend([int(x)] if not batch else map(int, x))
        if 5 in seen:
            gate.wait(DEADLINE)
        running.release()
        return x

    method = {'workfn': work, **({'batch': batch} if batch else {})}
    serve(where=WHERE, f=method, open=gate.set)
    client = connect(maxinflight=32)
    call_until_at(client, 'f', -1)
    seen.clear()
    futures = [client.f(x) for x in range(20)]
    client.open().result(DEADLINE)  # What the blocked handler waits for.
    assert [int(future.result(DEADLINE)) for future in futures] == list(range(20))
    assert seen == list(range(20))


def test_a_handler_may_call_its_own_server(serve, connect):
    nested = []
    serve(where=WHERE, f=lambda x: nested[0].g(x).result(DEADLINE) if x else 0, g=abs)
    nested.append(connect())
    client = connect()
    call_until_at(client, 'f', 0)
    assert client.f(-3).result(DEADLINE) == 3


def test_closing_ends_a_worker_that_runs_the_loop(serve, connect, caplog):
    before = set(threading.enumerate())
    settings = transport.Settings(grace=DEADLINE)
    server = serve(options={'settings': settings}, where=WHERE, f=abs)
    client = connect()
    call_until_at(client, 'f', 1)
    server.close()
    client.close()
    assert set(threading.enumerate()) <= before
    assert 'left behind' not in caplog.text


@pytest.mark.filterwarnings('ignore::pytest.PytestUnhandledThreadExceptionWarning')
def test_a_handler_that_ends_its_thread_does_not_end_the_loop(serve, connect):
    def work(x):
        if x < 0:
            raise SystemExit
        return x

    serve(where=WHERE, f=work, g=abs)
    client = connect()
    call_until_at(client, 'f', 1)
    client.f(-1).add_done_callback(lambda _: None)
    assert client.g(-2).result(DEADLINE) == 2
    assert client.where().result(DEADLINE).endswith('-io')


def test_an_error_in_the_loop_is_raised_at_home():
    loop, errors = Loop(), []
    lending = lease.Lease(loop)
    visit = lease.Visit(lease.Tempo(), bool)

    def settle():
        if lending.visit is None:
            lending.offer(visit)
            worker.start()
            return False
        raise OSError('no descriptors left')

    def run():
        try:
            lending.run()
        except OSError as e:
            errors.append(e)

    worker = threading.Thread(target=lambda: lending.accept(visit))
    home = threading.Thread(target=run)
    loop.add_settler(settle)
    home.start()
    home.join(DEADLINE)
    worker.join(DEADLINE)
    assert [str(e) for e in errors] == ['no descriptors left']
    loop.close()


@pytest.mark.parametrize('calls', [300, pytest.param(20_000, marks=pytest.mark.long)])
def test_every_call_is_answered_while_the_loop_moves_about(
    serve, connect, monkeypatch, calls
):
    """It is lent after two calls, and some calls take longer than it waits."""
    monkeypatch.setattr(lease, 'FIRST_RUN', 2)
    monkeypatch.setattr(lease, 'LAST_RUN', 2)
    never, names = threading.Event(), ['f', 'g', 'rows', 'ahead']

    def work(wait, x):
        if np.any(wait):
            never.wait(2 * lease.PATIENCE)
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
