"""Elastic: many environments come, act and leave, again and again.

    python bench/elastic.py                        1,000 environments, twice
    python bench/elastic.py --envs 60 --rounds 1   fewer

One JSON line per figure on stdout. The run plans for a few environments, the others
join it. All roles are real; only the environments are simulated, many in a process, and
each worker has a connection of its own. They join one after the other, act at the same
time, and leave one after the other; all of their requests count, also those around the
joining and leaving of others. Exits with 1 if the actor's memory does not return to its
start, or if in every round the slowest percent of requests took more than ten times the
median.

`late_ms` is by how much a thread that only sleeps wakes up too late. Requests cannot be
quicker: if it is seconds, so are they, because others have the cores. On a shared
machine `echo -19 > /proc/self/autogroup` and begin with `nice -n -19`.
"""

import argparse
import contextlib
import functools
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import elements
import numpy as np
import runtime
from chaos import anonymous_bytes

import embodied
from embodied import envs, transport
from embodied.run import parallel
from embodied.run.parallel.context import RoleContext
from embodied.run.parallel.env.group import make_group
from embodied.run.parallel.env.worker import EnvWorker
from embodied.run.parallel.settings import WorkerPlan

ENVS, ROUNDS = 1000, 2
RAMP, SECONDS, PACE = 20.0, 30.0, 2.0
PLANNED = 16
PROCESSES = 4  # that play them
CARRY = 2048  # numbers that the policy remembers of each environment, as at size12m
# Megabytes by which memory may be larger than at the start: the C library keeps freed
# memory at the end of the arena of each thread. Messages of 1,000 rows have 12 MB.
SLACK = 32
MOST_SPREAD = 10.0  # of the slowest percent of requests against the median
CHUNK = 64  # steps
NAP = 0.02  # seconds
STACK = 2**18  # bytes for each of the many threads
MEGABYTE = 2**20


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--envs', type=int, default=ENVS)
    parser.add_argument('--per_worker', type=int, default=1)
    parser.add_argument('--rounds', type=int, default=ROUNDS)
    parser.add_argument(
        '--ramp', type=float, default=RAMP, help='seconds of joining, and of leaving'
    )
    parser.add_argument(
        '--seconds', type=float, default=SECONDS, help='of acting together'
    )
    parser.add_argument('--pace', type=float, default=PACE, help='seconds per step')
    parser.add_argument('--play', type=int, default=-1, help=argparse.SUPPRESS)
    parser.add_argument('--folder', default='', help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.play >= 0:
        play(options)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        options.folder = folder
        return measure(options)


def measure(options: argparse.Namespace) -> int:
    """Runs everything but the environments here, and these in processes of ours."""
    folder = Path(options.folder)
    args = make_args(folder)
    (folder / 'args.json').write_text(json.dumps(dict(args)))
    observer = Observer(options)
    observer.start()
    bind = functools.partial
    parallel.combined(
        bind(RememberingAgent, runtime.Folder(folder, PLANNED)),
        bind(make_replay, folder),
        bind(runtime.make_replay, False),
        bind(FakeEnv, 0.0, 0.0),
        bind(FakeEnv, 0.0, 0.0),
        runtime.make_stream,
        bind(runtime.make_logger, str(folder)),
        args,
    )
    observer.join()
    return show(options, observer)


def make_args(folder: Path) -> elements.Config:
    changes = {
        'actor_addr': f'localhost:{transport.free_port()}',
        'logdir': str(folder),
        'envs': PLANNED,
        'remote_envs': True,
        'train_ratio': runtime.HARDLY,
    }
    return elements.Config({**runtime.ARGS, **changes})


def make_replay(folder: Path) -> embodied.Replay:
    """On disk, as in distributed runs; in short chunks, since streams are short."""
    length = runtime.LENGTH + runtime.CONTEXT
    directory = folder / 'replay'
    return embodied.replay.Replay(
        length, runtime.CAPACITY, directory=directory, chunksize=CHUNK
    )


class Observer(threading.Thread):
    """Lets environments come and go, measures, and ends the run."""

    def __init__(self, options: argparse.Namespace):
        super().__init__(name='observer', daemon=True)
        self._options = options
        self.memory: list[float] = []  # megabytes, at the start and after each round
        # Requests (environment, begin, end) and latenesses of each round.
        self.rounds: list[tuple[np.ndarray, list[float]]] = []

    def run(self) -> None:
        options = self._options
        try:
            # As much as is planned for, so that everything was used once.
            self._round(PLANNED, 1)
            self._weigh()
            for _ in range(self._options.rounds):
                with Sleeper() as sleeper:
                    requests = self._round(options.envs, options.per_worker)
                self.rounds.append((requests, sleeper.late))
                self._weigh()
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    def _round(self, count: int, per_worker: int) -> np.ndarray:
        """All requests of environments that come, act and leave."""
        players, options = [], self._options
        for number in range(PROCESSES):
            share = count * (number + 1) // PROCESSES - count * number // PROCESSES
            command = [sys.executable, __file__, '--play', str(number)]
            command += ['--envs', str(share), '--per_worker', str(per_worker)]
            for name in ('ramp', 'seconds', 'pace'):
                command += [f'--{name}', str(getattr(options, name))]
            players.append(subprocess.Popen([*command, '--folder', options.folder]))
        for player in players:
            assert player.wait() == 0
        files = Path(options.folder).glob('requests-*.npy')
        return np.concatenate([np.load(path) for path in files])

    def _weigh(self) -> None:
        (agent,) = runtime.role_processes()['agent']
        self.memory.append(round(anonymous_bytes(agent.pid) / MEGABYTE, 1))


class Sleeper(threading.Thread):
    """Measures by how much it wakes up too late, while it is entered."""

    def __init__(self) -> None:
        super().__init__(name='sleeper', daemon=True)
        self._awake = threading.Event()
        self.late: list[float] = []

    def __enter__(self) -> 'Sleeper':
        self.start()
        return self

    def __exit__(self, *details: object) -> None:
        self._awake.set()
        self.join()

    def run(self) -> None:
        due = time.perf_counter() + NAP
        while not self._awake.wait(max(0.0, due - time.perf_counter())):
            now = time.perf_counter()
            self.late.append(now - due)
            due = now + NAP


def show(options: argparse.Namespace, seen: Observer) -> int:
    """One line per figure; 1 if one of them is not as it must be."""
    common = {'envs': options.envs, 'per_worker': options.per_worker}
    spreads = []
    for requests, late in seen.rounds:
        waits = quantiles(requests[:, 2] - requests[:, 1])
        spreads.append(waits['p99'] / waits['p50'])
        counts = {'requests': len(requests), 'together': together(requests)}
        spread = round(spreads[-1], 2)
        late_ms = quantiles(late)
        line(
            what='request_ms',
            **counts,
            **waits,
            spread=spread,
            late_ms=late_ms,
            **common,
        )
    start, *ends = seen.memory
    line(what='actor_memory_mb', start=start, ends=ends, slack=SLACK, **common)
    # The better round counts: others on the machine can only add to it.
    return int(ends[-1] > start + SLACK or min(spreads) > MOST_SPREAD)


def quantiles(seconds: Sequence[float] | np.ndarray) -> dict[str, float]:
    """Quantiles by name, in milliseconds."""
    values = 1000 * np.percentile(seconds, [50, 99, 100])
    return dict(zip(('p50', 'p99', 'max'), values.round(2).tolist(), strict=True))


def together(requests: np.ndarray) -> int:
    """Most environments between their first and their last request at one time."""
    _, places = np.unique(requests[:, 0], return_inverse=True)
    first, last = np.full(places.max() + 1, np.inf), np.zeros(places.max() + 1)
    np.minimum.at(first, places, requests[:, 1])
    np.maximum.at(last, places, requests[:, 2])
    return max(int(((first <= time) & (time <= last)).sum()) for time in first)


def line(**figures: Any) -> None:
    print(json.dumps({'bench': 'elastic', **figures}), flush=True)


# In the processes that play


def play(options: argparse.Namespace) -> None:
    """Plays a share of the environments, each worker in a thread."""
    folder = Path(options.folder)
    args = elements.Config(json.loads((folder / 'args.json').read_text()))
    context = RoleContext.of(args)
    threading.stack_size(STACK)
    first = options.play * ENVS  # numbers of this worker alone
    requests: list[tuple[int, float, float]] = []
    threads: list[threading.Thread] = []
    begins = range(first, first + options.envs, options.per_worker)
    pause, due = options.ramp / len(begins), time.monotonic()
    for begin in begins:
        end = min(begin + options.per_worker, first + options.envs)
        plan = WorkerPlan(tuple(range(begin, end)), is_eval=False)
        threading.Event().wait(max(0.0, due - time.monotonic()))
        due += pause
        deadline = due + options.ramp + options.seconds  # when all have come
        makes = [
            functools.partial(FakeEnv, options.pace, deadline, i, requests)
            for i in plan.envids
        ]
        threads.append(threading.Thread(target=work, args=(makes, plan, context)))
        threads[-1].start()
    for thread in threads:
        thread.join()
    np.save(folder / f'requests-{options.play}.npy', np.array(requests))


def work(makes: list, plan: WorkerPlan, context: RoleContext) -> None:
    """One worker, as the real one but for its end: it leaves when it likes."""
    group = make_group(makes, plan.envids, context.health)
    addr = context.settings.actor_addr
    with context.make_client(addr, 'elastic') as actor:
        context.await_server(actor, 'actor', addr)
        try:
            EnvWorker(group, plan, context).run(actor)
        except Leaving:
            with contextlib.suppress(Leaving):  # of the others
                group.close()


class Leaving(BaseException):
    """An environment has had enough; not one of the errors that are explained."""


class FakeEnv(envs.Dummy):
    """Steps at its own pace until it leaves, and measures how long actions take."""

    def __init__(
        self,
        pace: float,
        deadline: float,
        index: int = 0,
        requests: list[tuple[int, float, float]] | None = None,
    ):
        super().__init__('disc', (64, 64))
        self._index, self._random = index, random.Random(index)
        self._pace, self._deadline = pace, deadline
        self._requests = [] if requests is None else requests
        self._returned: float | None = None

    def step(self, action: Any) -> dict[str, Any]:
        now = time.perf_counter()
        if self._returned is not None:
            self._requests.append((self._index, self._returned, now))
        if time.monotonic() > self._deadline:
            raise Leaving
        threading.Event().wait(self._pace * self._random.uniform(0.5, 1.5))
        obs = super().step(action)
        self._returned = time.perf_counter()
        return obs


class RememberingAgent(runtime.TrivialAgent):
    """Learns nothing, but remembers as much of each environment as a large one."""

    def init_policy(self, batch_size: int) -> np.ndarray:
        return np.zeros((batch_size, CARRY), np.float32)

    def policy(self, carry: Any, obs: dict, mode: str = 'train') -> tuple:
        return carry + 1, *super().policy(carry, obs, mode)[1:]


if __name__ == '__main__':
    sys.exit(main())
