"""Network: what distance and encryption cost a run on several hosts.

    python bench/network.py              everything, about two minutes
    python bench/network.py steps        environments on another host
    python bench/network.py batches      large replies over TCP, with and without CURVE

One JSON line per figure on stdout, with the direct case of the same run as yardstick.
`steps` needs network namespaces, and says so where there are none. A network with a
delay of d seconds each way makes a step take 2 d longer; `explained` is the rate that
follows from that alone, with d as the proxy in between has measured it.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil

PARTS = Path(__file__).parent.parent / 'tests' / 'integration'
sys.path.insert(0, str(PARTS))

import hosts  # noqa: E402
from apart import Apart, run_apart  # noqa: E402
from fault_parts import audit  # noqa: E402

from embodied import transport  # noqa: E402
from embodied.transport import keys  # noqa: E402

SECONDS, PAUSE = 6.0, 2.0  # of a measurement, and before it
ROUNDS = 2
ENVS, PER_WORKER, PACE = 16, 8, 0.01
DELAYS = (0.0, 0.005, 0.02)  # seconds each way
CUTS = 1.0  # seconds between two cuts
IMAGES = (16, 65, 64, 64, 3)  # of a batch, 12.8 MB
INFLIGHT = 2  # batches, as run.prefetch
GIGABYTE = 1e9
NO_SLABS = transport.Settings(slab_bytes=0)  # as between hosts


def main(argv: Sequence[str] | None = None) -> None:
    kinds = {'steps': measure_steps, 'batches': measure_batches}
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('kinds', nargs='*', default=[], metavar='|'.join(kinds))
    parser.add_argument('--seconds', type=float, default=SECONDS)
    parser.add_argument('--serve', nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.serve:
        serve(*options.serve)
        return
    for kind in options.kinds or kinds:
        for figure in kinds[kind](options.seconds):
            print(json.dumps({'bench': 'network', **figure}), flush=True)


# Environments on another host


def measure_steps(seconds: float) -> Iterator[dict[str, Any]]:
    """Steps stored per second, at several delays in turn within one run."""
    if reason := hosts.missing():
        yield {'what': 'env_steps_per_second', 'skipped': reason}
        return
    flags = ['--envs', ENVS, '--envs_per_worker', PER_WORKER, '--pace', PACE]
    flags += ['--train_ratio', 1.0]
    seen: dict[float, list[tuple[float, float]]] = {delay: [] for delay in DELAYS}
    with (
        tempfile.TemporaryDirectory() as folder,
        run_apart(Path(folder), *map(str, flags)) as parts,
    ):
        parts.run.await_steps(500)
        for _ in range(ROUNDS):
            for delay in DELAYS:
                parts.network.command('delay', delay)
                seen[delay].append(steps_per_second(parts, seconds))
        before = parts.network.command('cut', CUTS)['cuts']
        cut, _ = steps_per_second(parts, seconds)
        cuts = parts.network.command('cut', 0)['cuts'] - before
        parts.run.interrupt()
        assert parts.run.wait() == 0, parts.run.log
        lost = audit(parts.run.logdir)
    direct, least = np.mean(seen[0.0], 0)
    for delay in DELAYS:
        rate, way = np.mean(seen[delay], 0)
        explained = ENVS / (ENVS / direct + 2 * (way - least))
        yield {
            'what': 'env_steps_per_second',
            'envs': ENVS,
            'delay_ms': 1000 * delay,
            'measured_ms': round(1000 * way, 2),
            'value': round(rate, 1),
            'explained': round(explained, 1),
            'ratio': round(rate / explained, 3),
        }
    yield {
        'what': 'env_steps_per_second',
        'envs': ENVS,
        'delay_ms': 1000 * DELAYS[-1],
        'cuts': cuts,
        'seconds': seconds,
        'value': round(cut, 1),
    }
    yield {'what': 'transitions', **lost._asdict()}


def steps_per_second(parts: Apart, seconds: float) -> tuple[float, float]:
    """Also the seconds that a chunk of bytes was on its way."""
    threading.Event().wait(PAUSE)
    before, stored = parts.network.command('count'), parts.run.stored
    begin = time.perf_counter()
    threading.Event().wait(seconds)
    rate = (parts.run.stored - stored) / (time.perf_counter() - begin)
    after = parts.network.command('count')
    way = after['seconds'] - before['seconds']
    return rate, way / max(1, after['chunks'] - before['chunks'])


# Large replies


def measure_batches(seconds: float) -> Iterator[dict[str, Any]]:
    """Batches per second through one and two connections, and what they cost."""
    with tempfile.TemporaryDirectory() as folder:
        keys.create(folder)
        for encrypt in (False, True):
            for connections in (1, 2):
                yield fetch(folder, encrypt, connections, seconds)


def fetch(
    folder: str, encrypt: bool, connections: int, seconds: float
) -> dict[str, Any]:
    addr = f'tcp://127.0.0.1:{transport.free_port()}'
    command = [sys.executable, __file__, '--serve', addr, folder if encrypt else '']
    half = keys.load(folder, {}).client if encrypt else None
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout and server.stdout.readline() == 'ready\n'
        options = {'keys': half, 'settings': NO_SLABS}
        clients = [transport.Client(addr, **options) for _ in range(connections)]
        futures = []
        for client in clients:
            client.connect(60)
            futures += [(client, client.call('batch')) for _ in range(INFLIGHT)]
        processes = psutil.Process(), psutil.Process(server.pid)
        before = [sum(x.cpu_times()[:2]) for x in processes]
        count, begin = 0, time.perf_counter()
        while time.perf_counter() < begin + seconds:
            client, future = futures.pop(0)
            future.result()
            count += 1
            futures.append((client, client.call('batch')))
        duration = time.perf_counter() - begin
        after = [sum(x.cpu_times()[:2]) for x in processes]
        for client in clients:
            client.close()
        server.kill()
    gigabytes = count * np.prod(IMAGES) / GIGABYTE
    ours, theirs = ((b - a) / gigabytes for a, b in zip(before, after, strict=True))
    return {
        'what': 'batches_per_second',
        'encrypted': encrypt,
        'connections': connections,
        'value': round(count / duration, 1),
        'gb_per_second': round(gigabytes / duration, 2),
        'core_seconds_per_gb': {'learner': round(ours, 2), 'replay': round(theirs, 2)},
    }


def serve(addr: str, folder: str) -> None:
    """Serves the same batch again and again, in a process of its own."""
    batch = {'image': np.zeros(IMAGES, np.uint8)}
    half = keys.load(folder, {}).server if folder else None
    server = transport.Server(addr, keys=half, settings=NO_SLABS)
    server.bind('batch', lambda: batch)
    server.start(block=False)
    print('ready', flush=True)
    server.wait()


if __name__ == '__main__':
    main()
