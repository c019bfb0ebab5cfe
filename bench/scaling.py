"""Scaling: what each role costs per step, with up to thousands of environments.

    python bench/scaling.py                     all sizes, about two minutes
    python bench/scaling.py --envs 1024         only those

One JSON line per size on stdout: steps per second, the processor time of each role per
step, and from it the steps per second that a core of that role can carry. All roles are
real and on this machine, with an agent that costs nothing. Only the environments are
simulated: workers send the same images as fast as they are answered, many workers in a
process. See docs/scaling.md.
"""

import argparse
import functools
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import elastic
import elements
import numpy as np
import psutil
import runtime

from embodied import envs
from embodied.run import parallel
from embodied.run.parallel.context import RoleContext

SECONDS, WARMUP = 5.0, 6.0
PROCESSES = 2  # that stand for all workers
SIZES = (  # environments in all, per worker (one connection), side of images
    (16, 1, 64),
    (16, 8, 64),
    (128, 8, 64),
    (256, 64, 64),
    (1024, 64, 64),
    (1024, 64, 16),
    (4096, 128, 16),
)
MICRO, TINY = 1e6, 1e-3


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--envs', type=int, default=0, help='only so many')
    parser.add_argument('--seconds', type=float, default=SECONDS)
    parser.add_argument('--play', nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.play:
        folder, *numbers = options.play
        play(Path(folder), *map(int, numbers))
        return
    for size in SIZES:
        if options.envs in (0, size[0]):
            print(json.dumps(measure(*size, options.seconds)), flush=True)


def measure(count: int, per_worker: int, side: int, seconds: float) -> dict[str, Any]:
    """One run with so many environments."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        args = elements.Config(elastic.make_args(folder), envs=count)
        (folder / 'args.json').write_text(json.dumps(dict(args)))
        np.zeros(count, np.int64).tofile(folder / 'steps')
        observer = Observer(folder, (count, per_worker, side), seconds)
        observer.start()
        bind = functools.partial
        parallel.combined(
            bind(runtime.TrivialAgent, runtime.Folder(folder, 1)),
            bind(elastic.make_replay, folder),
            bind(runtime.make_replay, False),
            envs.Dummy,
            envs.Dummy,
            runtime.make_stream,
            bind(runtime.make_logger, name),
            args,
        )
        observer.join()
    return {'bench': 'scaling', **observer.figures}


class Observer(threading.Thread):
    """Starts the environments, measures for some seconds, and ends the run."""

    def __init__(self, folder: Path, size: tuple[int, int, int], seconds: float):
        super().__init__(name='observer', daemon=True)
        self._folder = folder
        self._size = size
        self._seconds = seconds
        self.figures: dict[str, Any] = {}

    def run(self) -> None:
        count, per_worker, side = self._size
        players = []
        for number in range(PROCESSES):
            numbers = (number, count // PROCESSES, per_worker, side)
            command = [sys.executable, __file__, '--play', str(self._folder)]
            command += map(str, numbers)
            players.append(subprocess.Popen(command, stdout=subprocess.PIPE))
        for player in players:
            assert player.stdout and player.stdout.readline()  # all have acted
        try:
            threading.Event().wait(WARMUP)
            self._measure([psutil.Process(player.pid) for player in players])
        finally:
            os.kill(os.getpid(), signal.SIGTERM)
        for player in players:
            player.wait()

    def _measure(self, players: list[psutil.Process]) -> None:
        steps = np.memmap(self._folder / 'steps', np.int64, 'r')
        roles = {**runtime.role_processes(), 'workers': players}
        before, stepped, begin = runtime.cpu_times(roles), steps.sum(), now()
        threading.Event().wait(self._seconds)
        count, duration = int(steps.sum() - stepped), now() - begin
        after = runtime.cpu_times(roles)
        costs = {
            role: MICRO * (sum(after[role]) - sum(before[role])) / count
            for role in ('agent', 'replay', 'logger', 'workers')
        }
        self.figures = {
            'envs': self._size[0],
            'rows_per_message': self._size[1],
            'image': self._size[2],
            'steps_per_second': round(count / duration, 1),
            'core_us_per_step': {k: round(v, 1) for k, v in costs.items()},
            'steps_per_core': {
                k: round(MICRO / max(v, TINY)) for k, v in costs.items()
            },
        }


now = time.perf_counter


# In the processes that stand for workers


def play(folder: Path, number: int, count: int, per_worker: int, side: int) -> None:
    """Each worker in a thread, until the actor says that the run is over."""
    args = elements.Config(json.loads((folder / 'args.json').read_text()))
    context = RoleContext.of(args)
    steps = np.memmap(folder / 'steps', np.int64, 'r+')
    per_worker = min(per_worker, count)
    first = number * count
    met = threading.Barrier(count // per_worker + 1)
    threads = [
        threading.Thread(
            target=work, args=(context, range(i, i + per_worker), side, steps, met)
        )
        for i in range(first, first + count, per_worker)
    ]
    for thread in threads:
        thread.start()
    met.wait()
    print('ready', flush=True)
    for thread in threads:
        thread.join()


def work(
    context: RoleContext,
    envids: range,
    side: int,
    steps: np.ndarray,
    met: threading.Barrier,
) -> None:
    rows = len(envids)
    origin = {
        'envid': np.array(envids, np.int32),
        'worker_id': np.tile(np.frombuffer(os.urandom(16), np.uint8), (rows, 1)),
        'serial': np.zeros(rows, np.int64),
    }
    env = envs.Dummy('disc', (side, side))
    obs = env.step({'act_disc': np.int32(0), 'reset': np.bool_(True)})
    batch = {k: np.stack([v] * rows) for k, v in obs.items()}
    with context.make_client(context.settings.actor_addr, 'scaling') as actor:
        for turn in range(sys.maxsize):
            answer = actor.call('act', origin, batch, rows=rows).result()
            if answer['stop'].any():
                actor.call('leave', origin['worker_id'][0])
                return
            if turn == 0:
                batch = {**batch, 'is_first': np.zeros(rows, bool)}
                met.wait()
            origin = {**origin, 'serial': origin['serial'] + 1}
            steps[envids[0]] += rows


if __name__ == '__main__':
    main()
