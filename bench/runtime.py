"""Runtime: what the distributed system reaches with an agent that costs nothing.

    python bench/runtime.py                       everything, about two minutes
    python bench/runtime.py steps --envs 16       one kind of figure
    python bench/runtime.py --transport portal    over the stock RPC protocol

One JSON line per figure on stdout, with the bar and the goal to compare it with where
there is one. All runs go through `embodied.run.parallel.combined` with factories as
a user gives them; environments are dummies with 64x64x3 images, one process each
(envs_per_worker 1) or grouped as by default (0).
"""

import argparse
import collections
import functools
import json
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import elements
import numpy as np
import psutil
from roles import role_of

import embodied
from embodied import envs
from embodied.logging import JsonlOutput, Logger
from embodied.run import parallel

SECONDS = 6.0  # of each measurement
WARMUP = 1.0  # seconds after the last environment has taken its first step
CAPACITY = 5_000_000  # steps of the replay, as by default
FILLED = 10_000  # steps in a replay that is to be sampled from
BATCH, LENGTH, CONTEXT = 16, 64, 1  # 12.8 MB of images
HARDLY = 1e-3  # train ratio at which the learner has nothing to do
BUSY = 0.9  # share of the machine, or of one core, that counts as saturated
GIGABYTE = 1e9
ARGS = {  # what differs from the defaults
    'eval_envs': 0,
    'batch_size': BATCH,
    'batch_length': LENGTH,
    'report_length': LENGTH,
    'replay_context': CONTEXT,
    'log_every': 1.0,
    'report_every': 0.0,
    'save_every': 0.0,
    'episode_timeout': 0.0,
    'usage': False,
}


class Bar(NamedTuple):
    bar: float
    goal: float


STEPS_BARS = {  # per second, by environments and environments per worker
    (1, 1): Bar(800, 2500),
    (8, 1): Bar(2500, 5000),
    (16, 1): Bar(3000, 6000),
    (16, 0): Bar(6000, 15000),
}
LATENCY_BARS = {50: Bar(3, 1), 99: Bar(8, 3)}  # milliseconds by percentile, 8 envs
FETCH_BAR = Bar(250, 450)  # batches per second
START_BAR = Bar(8, 4)  # seconds until all of 16 environments step
MEMORY_BAR = Bar(1.2, 0.8)  # gigabytes, 16 environments
IDLE_BAR = Bar(0.01, 0.0)  # of a core, per process


def main(argv: Sequence[str] | None = None) -> None:
    kinds = {'steps': measure_steps, 'fetch': measure_fetch, 'idle': measure_idle}
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('kinds', nargs='*', default=[], metavar='|'.join(kinds))
    parser.add_argument('--transport', default='native', choices=('native', 'portal'))
    parser.add_argument('--envs', type=int, help='only this number of environments')
    parser.add_argument('--seconds', type=float, default=SECONDS)
    options = parser.parse_args(argv)
    unknown = set(options.kinds) - set(kinds)
    if unknown:
        parser.error(f'unknown kinds {sorted(unknown)}, there are {sorted(kinds)}')
    for kind in options.kinds or kinds:
        for figure in kinds[kind](options):
            line = {'bench': 'runtime', 'transport': options.transport, **figure}
            print(json.dumps(line), flush=True)


def measure_steps(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Environment steps through worker, actor and replay, and what they cost."""
    for (count, per_worker), bar in STEPS_BARS.items():
        if options.envs not in (None, count):
            continue
        seen = run(options, count, per_worker, PlayingEnv)
        common = {'envs': count, 'envs_per_worker': per_worker}
        yield figure('env_steps_per_second', seen.steps_per_second, bar, **common)
        for share, bars in LATENCY_BARS.items():
            value = 1000 * float(np.percentile(seen.waits, share))
            compared = bars if (count, per_worker) == (8, 1) else None
            yield figure(f'act_round_trip_ms_p{share}', value, compared, **common)
        start, memory = (START_BAR, MEMORY_BAR) if count == 16 else (None, None)
        yield figure('seconds_until_all_step', seen.start, start, **common)
        yield figure('memory_gb_pss', seen.memory, memory, **common)
        yield {'what': 'core_us_per_step', **common, **seen.cost_per_step()}
        yield {'what': 'bottleneck', **common, **bottleneck(seen)}


def measure_fetch(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Batches that the learner gets from a full replay while acting rests."""
    seen = run(options, 1, 1, RestingEnv, filled=True, train_ratio=-1.0)
    rate = seen.updates_per_second
    gigabytes = rate * BATCH * (LENGTH + CONTEXT) * 64 * 64 * 3 / GIGABYTE
    details = {'images_gb_per_second': round(gigabytes, 2)}
    yield figure('fetched_batches_per_second', rate, FETCH_BAR, **details)
    yield {'what': 'bottleneck', 'of': 'fetch', **bottleneck(seen)}


def measure_idle(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Processor time of connected processes that have nothing to do."""
    count = options.envs or 8
    seen = run(options, count, 1, RestingEnv)
    for role, loads in seen.loads.items():
        what = f'idle_core_share_{role}'
        yield figure(what, max(loads), IDLE_BAR, digits=4, envs=count)


def figure(
    what: str, value: float, bar: Bar | None, digits: int = 2, **details: Any
) -> dict[str, Any]:
    bars = bar._asdict() if bar else {}
    return {'what': what, 'value': round(value, digits), **bars, **details}


def bottleneck(seen: 'Seen') -> dict[str, Any]:
    """The role that more cores, or a faster thread, would have to help first."""
    sums = {role: sum(values) for role, values in seen.loads.items()}
    fullest = max(seen.loads, key=lambda role: max(seen.loads[role]))
    if seen.machine > BUSY:
        role, why = max(sums, key=sums.__getitem__), 'all cores are busy, with it most'
    elif max(seen.loads[fullest]) > BUSY:
        role, why = fullest, 'one process of it is busy all the time'
    else:
        role, why = 'none', 'processes wait for each other, no core is busy'
    shares = {role: round(value, 2) for role, value in sums.items()}
    machine = {'machine': round(seen.machine, 2), 'cores': os.cpu_count()}
    return {'role': role, 'why': why, 'core_shares': shares, **machine}


# One run and what is seen of it


class Seen(NamedTuple):
    start: float  # seconds until all environments step
    steps_per_second: float
    updates_per_second: float
    waits: np.ndarray  # seconds of each environment for each action
    memory: float  # gigabytes
    loads: dict[str, list[float]]  # core share of each process, by role
    machine: float  # share of all cores that are busy, with what else is running

    def cost_per_step(self) -> dict[str, float]:
        """Microseconds of one core by role: what remains true on a busy machine."""
        sums = {role: sum(values) for role, values in self.loads.items()}
        scale = 1e6 / max(1.0, self.steps_per_second)
        costs = {role: round(scale * value, 1) for role, value in sums.items()}
        return {'value': round(sum(costs.values()), 1), **costs}


def run(
    options: argparse.Namespace,
    count: int,
    per_worker: int,
    kind: type['PlayingEnv'],
    filled: bool = False,
    train_ratio: float = HARDLY,
    make_agent: Callable[['Folder'], Any] | None = None,
) -> Seen:
    """Runs `combined` until a thread of ours has seen enough."""
    with tempfile.TemporaryDirectory() as name:
        folder = Folder(Path(name), count)
        args = elements.Config(
            {
                **ARGS,
                'logdir': name,
                'envs': count,
                'envs_per_worker': per_worker,
                'train_ratio': train_ratio,
                'transport': options.transport,
            }
        )
        bind = functools.partial
        observer = Observer(folder, options.seconds)
        observer.start()
        parallel.combined(
            bind(make_agent or TrivialAgent, folder),
            bind(make_replay, filled),
            bind(make_replay, False),
            bind(kind, folder),
            bind(kind, folder),
            make_stream,
            bind(make_logger, name),
            args,
        )
        return observer.result()


class Folder:
    """Where the processes of a run leave what they count."""

    def __init__(self, path: Path, envs: int):
        self.path = path
        self.envs = envs
        np.zeros(envs + 1, np.int64).tofile(path / 'counts')
        os.mkfifo(path / 'door')

    def counts(self) -> np.ndarray:
        """Steps of each environment, then updates of the agent."""
        return np.memmap(self.path / 'counts', np.int64, 'r+')

    def knock(self) -> None:
        (self.path / 'door').write_text('x')

    def await_all(self) -> None:
        """Blocks until all environments have knocked."""
        # For writing as well: without writers, reading would not wait but end.
        with os.fdopen(os.open(self.path / 'door', os.O_RDWR), 'rb', 0) as door:
            for _ in range(self.envs):
                door.read(1)

    def waits(self) -> np.ndarray:
        return np.concatenate([np.load(x) for x in self.path.glob('waits-*.npy')])


class Observer(threading.Thread):
    """Measures for some seconds when all environments step, then ends the run."""

    def __init__(self, folder: Folder, seconds: float):
        super().__init__(name='observer', daemon=True)
        self._folder = folder
        self._seconds = seconds
        self._begin = time.perf_counter()
        self._figures: dict[str, Any] = {}

    def run(self) -> None:
        self._folder.await_all()
        start = time.perf_counter() - self._begin
        pause = threading.Event()
        pause.wait(WARMUP)
        processes = role_processes()
        gigabytes = memory(processes)  # before the replay has grown
        psutil.cpu_percent()  # begins to measure
        before, counts, begin = (
            cpu_times(processes),
            self._counts(),
            time.perf_counter(),
        )
        pause.wait(self._seconds)
        seconds = time.perf_counter() - begin
        steps, updates = np.subtract(self._counts(), counts)
        after = cpu_times(processes)
        self._figures = {
            'start': start,
            'steps_per_second': steps / seconds,
            'updates_per_second': updates / seconds,
            'machine': psutil.cpu_percent() / 100,
            'memory': gigabytes,
            'loads': {
                role: [(b - a) / seconds for a, b in zip(*pair, strict=True)]
                for role, pair in zip_roles(before, after)
            },
        }
        os.kill(os.getpid(), signal.SIGTERM)

    def result(self) -> Seen:
        self.join()
        return Seen(waits=self._folder.waits(), **self._figures)

    def _counts(self) -> tuple[int, int]:
        *steps, updates = self._folder.counts().tolist()
        return sum(steps), updates


def role_processes() -> dict[str, list[psutil.Process]]:
    """Our children by role, in the order in which they were started."""
    launcher = psutil.Process()
    found = collections.defaultdict(list, launcher=[launcher])
    for child in launcher.children():
        found[role_of(child).rstrip('0123456789') or 'guard'].append(child)
    return found


def cpu_times(processes: dict[str, list[psutil.Process]]) -> dict[str, list[float]]:
    return {
        role: [sum(x.cpu_times()[:2]) for x in members]
        for role, members in processes.items()
    }


def zip_roles(before: dict, after: dict) -> Iterator[tuple[str, tuple]]:
    for role, values in before.items():
        yield role, (values, after[role])


def memory(processes: dict[str, list[psutil.Process]]) -> float:
    """Gigabytes of all processes, with shared pages counted once."""
    pss = [x.memory_full_info().pss for group in processes.values() for x in group]
    return sum(pss) / GIGABYTE


# What `combined` is given


class PlayingEnv(envs.Dummy):
    """Counts its steps and how long it waits for actions."""

    rests = False

    def __init__(self, folder: Folder, index: int):
        super().__init__('disc', (64, 64))
        self._folder = folder
        self._index = index
        self._counts = folder.counts()
        self._waits: list[float] = []
        self._returned = time.perf_counter()

    def step(self, action: Any) -> dict[str, Any]:
        self._waits.append(time.perf_counter() - self._returned)
        self._counts[self._index] += 1
        if self._counts[self._index] == 2:  # the first with an action of the agent
            self._folder.knock()
            if self.rests:
                threading.Event().wait()
        obs = super().step(action)
        self._returned = time.perf_counter()
        return obs

    def close(self) -> None:
        # The first actions come when all roles have started and are warm.
        waits = np.array(self._waits[len(self._waits) // 4 :])
        np.save(self._folder.path / f'waits-{self._index}.npy', waits)


class RestingEnv(PlayingEnv):
    """Takes one step and then waits to be ended."""

    rests = True


class TrivialAgent:
    """Acts with zeros and learns nothing."""

    def __init__(self, folder: Folder):
        self._counts = folder.counts()

    def init_policy(self, batch_size: int) -> tuple:
        return ()

    def policy(self, carry: Any, obs: dict, mode: str = 'train') -> tuple:
        return carry, {'act_disc': np.zeros(len(obs['is_first']), np.int32)}, {}

    init_train = init_report = init_policy

    def train(self, carry: Any, batch: dict) -> tuple:
        self._counts[-1] += 1
        return carry, {}, {}

    def report(self, carry: Any, batch: dict) -> tuple:
        return carry, {}

    def stream(self, source: Iterator) -> Iterator:
        return source

    def save(self) -> None:
        return None

    def load(self, data: Any, regex: str | None = None) -> None:
        pass


def make_replay(filled: bool) -> embodied.Replay:
    replay = embodied.replay.Replay(LENGTH + CONTEXT, CAPACITY, online=True)
    if filled:
        env = envs.Dummy('disc', (64, 64))
        action = {'act_disc': np.int32(0), 'reset': np.bool_(False)}
        for _ in range(FILLED):
            replay.add({**env.step(action), 'act_disc': action['act_disc']})
    return replay


def make_stream(replay: embodied.Replay, mode: str) -> Iterator:
    source = embodied.streams.Stateless(replay.sample, BATCH, mode)
    return embodied.streams.Consec(source, LENGTH, 1, prefix=CONTEXT, contiguous=True)


def make_logger(logdir: str) -> Logger:
    return Logger(elements.Counter(), [JsonlOutput(logdir)])


if __name__ == '__main__':
    main()
