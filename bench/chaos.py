"""Chaos: harms a run without pause, and counts what it costs.

    python bench/chaos.py                              10 minutes, at least 40 faults
    python bench/chaos.py --minutes 2 --faults 8       shorter
    python bench/chaos.py --everything 20              kills the whole run 20 times
    python bench/chaos.py --agent real                 both also with the agent on JAX

One JSON line per figure on stdout. A random role is killed (-9) or stopped (SIGSTOP);
the next fault comes 1 to 5 seconds after it reports running again. Every transition
carries a number; in the end those in the store are compared with those that replay has
acknowledged. Exits with 1 if anything was lost or doubled or the run did not survive.
"""

import argparse
import collections
import json
import os
import random
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

PARTS = Path(__file__).parent.parent / 'tests' / 'integration'
sys.path.insert(0, str(PARTS))

import fault_parts  # noqa: E402
from faults import BAND, FaultyRun  # noqa: E402

from embodied.logging import read_records  # noqa: E402

ROLES = ('agent', 'replay', 'logger', 'env0', 'env2', 'env4', 'env6')
RATIO = 32.0
OPTIONS = {
    'envs': 8,
    'envs_per_worker': 2,
    'train_ratio': RATIO,
    'save_every': 5,
    'max_restarts': 5,
}
SIGNALS = {'kill': signal.SIGKILL, 'stop': signal.SIGSTOP}
SIGNS = {  # of a role that is well again
    'kill': {'event': 'role', 'state': 'running'},
    'stop': {'event': 'continued'},
}
STOPS = 0.25  # share of faults that stop a role instead of killing it
PAUSE = (1.0, 5.0)  # seconds between the end of one fault and the next
DEADLINE = 90.0  # seconds for a role to be back
COMPILE = 900.0  # seconds for a first start
BANDS = {'numpy': BAND, 'real': 16}  # sequences: four batches
PACE = 0.01  # seconds per step of an environment
STEPS = {'real': 8000, 'numpy': 20_000}  # of runs that are killed as a whole
MEGABYTE = 2**20


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--minutes', type=float, default=10.0)
    parser.add_argument('--faults', type=int, default=40, help='at least')
    parser.add_argument('--seed', type=int, default=0)
    parser.add_argument('--everything', type=int, default=0, metavar='TIMES')
    parser.add_argument('--agent', choices=('numpy', 'real'), default='numpy')
    parser.add_argument('--logdir', default='', help='kept if given')
    options = parser.parse_args(argv)
    rng = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        logdir = Path(options.logdir or folder)
        if options.everything:
            return kill_everything(logdir, options.everything, options.agent, rng)
        with start(logdir, options.agent, **OPTIONS) as run:
            harm_roles(run, 60 * options.minutes, options.faults, rng)
        failed = show_content(logdir) + show_ratio(logdir, BANDS[options.agent])
        return int(failed > 0)


def start(logdir: Path, agent: str, **options: Any) -> FaultyRun:
    """The command of a run with these options, the same for every agent."""
    real = agent == 'real'
    prefix = '--run.' if real else '--'
    flags = [str(x) for k, v in options.items() for x in (prefix + k, v)]
    flags += [] if real else ['--pace', str(PACE)]
    script = PARTS / ('fault_real.py' if real else 'fault_parts.py')
    return FaultyRun(logdir, *flags, script=script)


def harm_roles(run: FaultyRun, seconds: float, faults: int, rng: random.Random) -> None:
    """One run, one role at a time."""
    recoveries = collections.defaultdict(list)
    for role in ROLES:
        run.await_running(role, seconds=COMPILE)
    run.await_steps(1000, COMPILE)
    before, begin, count = measure(run), time.monotonic(), 0
    while time.monotonic() - begin < seconds or count < faults:
        role = rng.choice(ROLES)
        kind = 'stop' if rng.random() < STOPS else 'kill'
        recoveries[role, kind].append(harm(run, role, kind))
        count += 1
        threading.Event().wait(rng.uniform(*PAUSE))
    run.await_steps(1000)
    after, duration = measure(run), time.monotonic() - begin
    run.interrupt()
    assert run.wait() == 0, run.log
    show('faults', count, minutes=duration / 60)
    for (role, kind), times in sorted(recoveries.items()):
        show_times(f'{kind}_recovery_seconds', times, role=role)
    for name in before:
        show(name, after[name], begin=before[name])


def harm(run: FaultyRun, role: str, kind: str) -> float:
    """Seconds until the role is well again."""
    begin, seen, pid = time.monotonic(), len(run.events()), run.pid(role)
    os.kill(pid, SIGNALS[kind])
    well = lambda event: event.items() >= {**SIGNS[kind], 'role': role}.items()
    run.await_event(well, DEADLINE, since=seen)
    return time.monotonic() - begin


def kill_everything(logdir: Path, times: int, agent: str, rng: random.Random) -> int:
    """The same command again and again, until it comes to its end."""
    options = {'steps': STEPS[agent], 'envs': 4, 'save_every': 1}
    starts, stored = [], 0
    for _ in range(times):
        begin = time.monotonic()
        with start(logdir, agent, **options) as run:
            if run.await_steps_or_end(rng.randrange(1, 200), COMPILE):
                break
            starts.append(time.monotonic() - begin)
            threading.Event().wait(rng.uniform(0.0, 3.0))
        stored = run.stored
    with start(logdir, agent, **options) as run:
        assert run.wait(COMPILE) == 0, run.log
    show('everything_killed', len(starts), agent=agent, stored_before=stored)
    show_times('first_steps_seconds', starts, agent=agent)
    return show_content(logdir)


def measure(run: FaultyRun) -> dict[str, float]:
    """Memory, descriptors and shared memory of all processes of the run."""
    anonymous = descriptors = processes = 0
    for process in run.processes():
        with process.oneshot():
            processes += 1
            descriptors += process.num_fds()
        anonymous += anonymous_bytes(process.pid)
    return {
        'processes': processes,
        'memory_mb': round(anonymous / MEGABYTE, 1),
        'launcher_memory_mb': round(anonymous_bytes(run.launcher.pid) / MEGABYTE, 1),
        'descriptors': descriptors,
        'launcher_descriptors': psutil.Process(run.launcher.pid).num_fds(),
        'shared_memory_files': len(os.listdir('/dev/shm')),
    }


def anonymous_bytes(pid: int) -> int:
    """Memory without mapped files, whose pages the system may take back."""
    for line in Path(f'/proc/{pid}/status').read_text().splitlines():
        if line.startswith('RssAnon'):
            return 1024 * int(line.split()[1])
    raise AssertionError(f'no RssAnon of {pid}')


def show_content(logdir: Path) -> int:
    """Compares what is stored with what was acknowledged; 1 if they differ."""
    found = fault_parts.audit(logdir)
    show('transitions', **found._asdict())
    return int(bool(found.lost or found.doubled or found.holes))


def show_ratio(logdir: Path, band: int) -> int:
    """Where training is; 1 if the limiter should not have let it get there."""
    records = read_records(logdir / 'metrics.jsonl')
    found = [x for x in records if 'replay/train_ratio' in x][-1]
    reached, balance = found['replay/train_ratio'], found['replay/balance']
    show('train_ratio', reached, wanted=RATIO, balance=balance, band=band)
    return int(abs(balance) > band)


def show_times(name: str, times: list[float], **details: Any) -> None:
    show(name, statistics.median(times), count=len(times), max=max(times), **details)


def show(name: str, value: float | None = None, **details: Any) -> None:
    line: dict[str, Any] = {'bench': 'chaos', 'figure': name}
    line |= {} if value is None else {'value': value}
    line |= details
    short = {k: round(v, 2) if isinstance(v, float) else v for k, v in line.items()}
    print(json.dumps(short), flush=True)


if __name__ == '__main__':
    sys.exit(main())
