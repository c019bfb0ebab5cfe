"""Transport: latency, fairness, large replies, batches, idle cost, and yardsticks.

    python bench/transport.py                  everything, about three minutes
    python bench/transport.py latency large    some of it

One JSON line per figure on stdout. The stock portal library, a bare ROUTER/DEALER loop
over ipc and over TCP, and memcpy are measured in the same run: machines differ, ratios
less so.
"""

import argparse
import collections
import contextlib
import json
import multiprocessing as mp
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import psutil
import zmq

from embodied import transport
from embodied.transport import keys as keys_lib

DEADLINE = 60.0
SECONDS = 3.0  # per figure
ROUNDS = 3  # of figures that are compared with each other
LATENCY_CALLS = 3000
FAIR_CLIENTS, FAIR_PROCESSES = 64, 4
CLIENTS = 16
LARGE_SHAPE = (16, 65, 64, 64, 3)  # uint8, 12.8 MB
LOOKAHEAD = 2
IDLE_SECONDS = 10.0
BATCH = 8
WORKERS = 1  # of a method, as `run.actor_threads`
SMALL = np.zeros(1024, np.uint8)
CONTEXT = mp.get_context('spawn')


def observation(rows: int) -> dict[str, np.ndarray]:
    shape = (rows,) if rows else ()
    return {
        'image': np.zeros((*shape, 64, 64, 3), np.uint8),
        'reward': np.zeros(shape, np.float32),
        'is_first': np.zeros(shape, bool),
    }


# Servers, each in a process of its own.


def serve_ours(addr: str, options: dict, ready: Any) -> None:
    large = np.zeros(LARGE_SHAPE, np.uint8)
    server = transport.Server(addr, **options)
    # As the roles bind their methods: each call runs once in a thread of the method's
    # own, and what the actor does with the rows comes after its reply.
    after = lambda rows: None
    server.bind('echo', lambda x: (x, x), after, workers=WORKERS, once=True)
    server.bind('large', lambda: large, once=True)
    act = lambda obs: ({'action': obs['reward']}, obs)
    for name, batch in (('act', BATCH), ('act8', 8 * BATCH)):
        server.bind_batched(name, act, after, batch, workers=WORKERS, once=True)
    server.start(block=False)
    ready.set()
    server.wait()


def serve_portal(port: int, ready: Any) -> None:
    import portal

    large = np.zeros(LARGE_SHAPE, np.uint8)
    server = portal.Server(port, logging=False)
    server.bind('echo', lambda x: x)
    server.bind('large', lambda: large)
    ready.set()
    server.start()


def serve_bare(endpoint: str, ready: Any) -> None:
    with zmq.Context() as context, context.socket(zmq.ROUTER) as sock:
        sock.bind(endpoint)
        ready.set()
        while True:
            route, data = sock.recv_multipart()
            sock.send_multipart([route, data if len(data) < 4096 else data[:100]])


def serve_bare_large(endpoint: str, ready: Any) -> None:
    large = np.zeros(LARGE_SHAPE, np.uint8)
    with zmq.Context() as context, context.socket(zmq.ROUTER) as sock:
        sock.bind(endpoint)
        ready.set()
        while True:
            sock.send(sock.recv_multipart()[0], zmq.SNDMORE)
            sock.send(large, copy=False)


@contextlib.contextmanager
def running(target: Callable, *args: Any) -> Iterator[mp.Process]:
    ready = CONTEXT.Event()
    process = CONTEXT.Process(target=target, args=(*args, ready), daemon=True)
    process.start()
    assert ready.wait(DEADLINE)
    try:
        yield process
    finally:
        process.kill()
        process.join()


# Figures.


def latency() -> None:
    """Rounds in turn, since waking up an idle core takes longer at times."""
    rounds = collections.defaultdict(list)
    data = SMALL.tobytes()
    for _ in range(ROUNDS):
        addr = f'localhost:{transport.free_port()}'
        with running(serve_ours, addr, {}), transport.Client(addr) as client:
            call = lambda client=client: client.call('echo', SMALL).result(DEADLINE)
            rounds['ours'].append(percentiles(call))
        for name, endpoint in bare_endpoints().items():
            with running(serve_bare, endpoint), bare_client(endpoint) as sock:
                call = lambda sock=sock: (sock.send(data), sock.recv())
                rounds[name].append(percentiles(call))
        with portal_client() as client:
            call = lambda client=client: client.call('echo', SMALL).result()
            rounds['portal'].append(percentiles(call))
    medians = {name: np.median(values, 0) for name, values in rounds.items()}
    report(
        'latency_1kb',
        p50_ms=medians['ours'][0],
        p99_ms=medians['ours'][1],
        bare_p50_ms=medians['bare'][0],
        bare_tcp_p50_ms=medians['bare_tcp'][0],
        portal_p50_ms=medians['portal'][0],
        ratio_to_portal=medians['ours'][0] / medians['portal'][0],
        bar='ratio_to_portal <= 0.35',
    )


def fairness() -> None:
    addr = f'localhost:{transport.free_port()}'
    per_process = FAIR_CLIENTS // FAIR_PROCESSES
    with running(serve_ours, addr, {}):
        counts = in_processes(FAIR_PROCESSES, count_fair, addr, per_process)
    rates = np.concatenate(counts) / SECONDS
    report(
        'fairness_64_clients',
        total_per_s=rates.sum(),
        slowest_to_mean=rates.min() / rates.mean(),
        bar='slowest_to_mean >= 0.25',
    )


def large() -> None:
    source = np.zeros(LARGE_SHAPE, np.uint8)
    target = np.ones(LARGE_SHAPE, np.uint8)
    memcpy = rate(lambda: np.copyto(target, source)) * source.nbytes / 1e9
    bare = bare_large_speed()
    with tempfile.TemporaryDirectory() as folder:
        keys = keys_lib.create(folder)
        inline = {'settings': transport.Settings(slab_bytes=0)}
        cases = [
            ('slabs', 'localhost', {}, {}, 'gb_per_s >= min(4, 0.35 * memcpy)'),
            ('tcp', 'tcp://127.0.0.1', inline, inline, 'gb_per_s >= 2'),
            (
                'curve',
                'tcp://127.0.0.1',
                {**inline, 'keys': keys.server},
                {**inline, 'keys': keys.client},
                'reported',
            ),
        ]
        for name, host, server_options, client_options, bar in cases:
            addr = f'{host}:{transport.free_port()}'
            with (
                running(serve_ours, addr, server_options),
                transport.Client(addr, **client_options) as client,
            ):
                speed = large_speed(client)
            report(
                f'large_replies_{name}',
                gb_per_s=speed,
                memcpy_gb_per_s=memcpy,
                bare_tcp_gb_per_s=bare,
                ratio_to_memcpy=speed / memcpy,
                ratio_to_bare_tcp=speed / bare,
                bar=bar,
            )
    with portal_client() as client:
        speed = large_speed(client)
    report('large_replies_stock_portal', gb_per_s=speed, memcpy_gb_per_s=memcpy)


def batches() -> None:
    """Rounds in turn, so that a busy machine slows the yardstick down as well."""
    cases = {'act': 0, 'act8': 8}  # rows of each method
    rates = collections.defaultdict(list)
    for _ in range(ROUNDS):
        for name, endpoint in bare_endpoints().items():
            with running(serve_bare, endpoint):
                calls = in_processes(CLIENTS, count_bare, endpoint)
            rates[name].append(sum(calls) / SECONDS)
        for method, rows in cases.items():
            addr = f'localhost:{transport.free_port()}'
            with running(serve_ours, addr, {}):
                calls = in_processes(CLIENTS, count_batched, addr, method, rows)
            rates[method].append(sum(calls) / SECONDS)
    medians = {name: float(np.median(values)) for name, values in rates.items()}
    for name, method, bar in (
        ('1_rows', 'act', 'reported'),
        ('8_rows', 'act8', 'rows_per_s >= 25000'),
    ):
        calls, bare, tcp = medians[method], medians['bare'], medians['bare_tcp']
        report(
            f'batched_12kb_{name}',
            messages_per_s=calls,
            rows_per_s=calls * max(1, cases[method]),
            bare_messages_per_s=bare,
            bare_tcp_messages_per_s=tcp,
            ratio_to_bare=calls / bare,
            ratio_to_bare_tcp=calls / tcp,
            bar=bar,
        )


def idle() -> None:
    addr = f'localhost:{transport.free_port()}'
    with running(serve_ours, addr, {}) as server:
        gate, ready = CONTEXT.Event(), CONTEXT.Semaphore(0)
        processes = [
            CONTEXT.Process(target=rest, args=(addr, ready, gate), daemon=True)
            for _ in range(CLIENTS)
        ]
        [process.start() for process in processes]
        [ready.acquire() for _ in processes]
        watched = [psutil.Process(p.pid) for p in (server, *processes)]
        before = sum(cpu_seconds(process) for process in watched)
        gate.wait(IDLE_SECONDS)
        used = sum(cpu_seconds(process) for process in watched) - before
        gate.set()
        [process.join() for process in processes]
    report(
        'idle_16_clients_and_server',
        percent_of_a_core=100 * used / IDLE_SECONDS,
        bar='percent_of_a_core < 1',
    )


# Clients.


def count_fair(addr: str, clients: int, start: Any) -> np.ndarray:
    counts = np.zeros(clients, int)
    begin = threading.Barrier(clients + 1)

    def loop(index: int) -> None:
        with transport.Client(addr) as client:
            client.connect(DEADLINE)
            begin.wait()
            counts[index] = count(lambda: client.call('echo', SMALL).result(DEADLINE))

    threads = [threading.Thread(target=loop, args=(i,)) for i in range(clients)]
    [thread.start() for thread in threads]
    start()
    begin.wait()
    [thread.join() for thread in threads]
    return counts


def count_bare(endpoint: str, start: Any) -> int:
    data = observation(0)['image'].tobytes()
    with bare_client(endpoint) as sock:
        call = lambda: (sock.send(data), sock.recv())
        call()
        start()
        return count(call)


def count_batched(addr: str, method: str, rows: int, start: Any) -> int:
    obs = observation(rows)
    with transport.Client(addr) as client:
        call = lambda: client.call(method, obs, rows=rows).result(DEADLINE)
        call()
        start()
        return count(call)


def rest(addr: str, ready: Any, gate: Any) -> None:
    with transport.Client(addr) as client:
        client.call('echo', SMALL).result(DEADLINE)
        ready.release()
        gate.wait()


def large_speed(client: Any) -> float:
    """GB/s with some calls ahead; every page that arrives is read."""
    ahead = [client.call('large') for _ in range(LOOKAHEAD)]

    def fetch() -> None:
        ahead.append(client.call('large'))
        array = ahead.pop(0).result()
        array.reshape(-1)[::4096].sum()

    return rate(fetch) * np.prod(LARGE_SHAPE) / 1e9


def bare_large_speed() -> float:
    endpoint = f'tcp://127.0.0.1:{transport.free_port()}'
    with running(serve_bare_large, endpoint), bare_client(endpoint) as sock:
        [sock.send(b'') for _ in range(LOOKAHEAD)]

        def fetch() -> None:
            sock.send(b'')
            frame = sock.recv(copy=False)
            np.frombuffer(frame.buffer, np.uint8)[::4096].sum()

        return rate(fetch) * np.prod(LARGE_SHAPE) / 1e9


def bare_endpoints() -> dict[str, str]:
    """Ways that a bare loop can take on this host."""
    port = transport.free_port()
    return {'bare': f'ipc://@bench-{port}', 'bare_tcp': f'tcp://127.0.0.1:{port}'}


@contextlib.contextmanager
def bare_client(endpoint: str) -> Iterator[zmq.Socket]:
    with zmq.Context() as context, context.socket(zmq.DEALER) as sock:
        sock.connect(endpoint)
        yield sock


@contextlib.contextmanager
def portal_client() -> Iterator[Any]:
    import portal

    port = transport.free_port()
    with running(serve_portal, port):
        client = portal.Client(port, logging=False)
        client.connect()
        yield client
        client.close()


# Measuring.


def percentiles(call: Callable[[], Any]) -> tuple[float, float]:
    times = []
    for _ in range(LATENCY_CALLS):
        start = time.perf_counter()
        call()
        times.append(1000 * (time.perf_counter() - start))
    p50, p99 = np.percentile(times[LATENCY_CALLS // 10 :], [50, 99])
    return float(p50), float(p99)


def count(call: Callable[[], Any]) -> int:
    calls, end = 0, time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        call()
        calls += 1
    return calls


def rate(call: Callable[[], Any]) -> float:
    for _ in range(5):
        call()
    start = time.perf_counter()
    return count(call) / (time.perf_counter() - start)


def in_processes(number: int, fn: Callable, *args: Any) -> list:
    """Results of a function in many processes that begin together."""
    barrier, results = CONTEXT.Barrier(number), CONTEXT.Queue()
    processes = [
        CONTEXT.Process(target=enter, args=(fn, args, barrier, results), daemon=True)
        for _ in range(number)
    ]
    [process.start() for process in processes]
    values = [results.get(timeout=DEADLINE) for _ in processes]
    [process.join() for process in processes]
    return values


def enter(fn: Callable, args: tuple, barrier: Any, results: Any) -> None:
    results.put(fn(*args, barrier.wait))


def cpu_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def report(name: str, bar: str = '', **figures: float) -> None:
    plain = {key: round(float(value), 4) for key, value in figures.items()}
    print(json.dumps({'bench': f'transport/{name}', **plain, 'bar': bar}), flush=True)


FIGURES = {f.__name__: f for f in (latency, fairness, large, batches, idle)}


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('figures', nargs='*', metavar='|'.join(FIGURES))
    args = parser.parse_args(argv)
    unknown = set(args.figures) - set(FIGURES)
    if unknown:
        parser.error(f'unknown figures {sorted(unknown)}, there are {list(FIGURES)}')
    for name in args.figures or FIGURES:
        FIGURES[name]()


if __name__ == '__main__':
    main()
