"""Cluster: trains on three Ray nodes of this machine, two of which are killed.

    python bench/cluster.py                            6 minutes of toy_catch
    python bench/cluster.py --minutes 3 --quiet-nodes  without killing any

One node has the agent and the logger, one the environments, one the replay. After a
quarter of the time the node with the environments is killed and another one joins;
after half of it, that with the replay. One JSON line on stdout: the share of the gap
between random play and optimum that was closed, steps, updates and the seconds from
each kill until the roles of that node were at work again. Exits with 1 if the run
failed or closed less than --goal of the gap.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

PARTS = Path(__file__).parent.parent / 'tests' / 'integration'
sys.path.insert(0, str(PARTS))

import ray_nodes  # noqa: E402
from watching import FolderWatch  # noqa: E402

from dreamerv3 import config as config_lib  # noqa: E402
from dreamerv3.commands import demo  # noqa: E402
from embodied.logging import read_records  # noqa: E402
from embodied.run.parallel.saves.manifest import Manifest  # noqa: E402

FLAGS = ('--configs', 'tiny', 'demo')
NODES = ({'agent': 1, 'logger': 1}, {'env': 1}, {'replay': 1})
KINDS = ('agent', 'logger', 'env', 'replay')
KILLS = {0.25: ('node1', 'env'), 0.5: ('node2', 'replay')}  # by share of the time
RECENT = 100  # episodes behind the score
DEADLINE = 300.0  # seconds for a role to come back


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--minutes', type=float, default=6)
    parser.add_argument('--goal', type=float, default=0.9, help='share of the gap')
    parser.add_argument('--quiet-nodes', action='store_true', help='kill none')
    args = parser.parse_args(argv)
    kills = {} if args.quiet_nodes else KILLS
    with tempfile.TemporaryDirectory() as folder:
        logdir = Path(folder)
        with ray_nodes.cluster(*NODES) as nodes:
            code, recovery = train(logdir, nodes, args.minutes, kills)
        figures = {**learned(logdir), 'recovery_seconds': recovery}
    line = {'bench': 'cluster', 'nodes': len(NODES), 'minutes': args.minutes, **figures}
    print(json.dumps({**line, 'exit_code': code}), flush=True)
    if code or figures['gap_closed'] < args.goal:
        raise SystemExit(1)


def train(
    logdir: Path,
    nodes: ray_nodes.Nodes,
    minutes: float,
    kills: dict[float, tuple[str, str]],
) -> tuple[int, dict[str, float]]:
    """Runs to the end: the exit code, and the seconds that each kill cost."""
    command = [sys.executable, '-m', 'dreamerv3', 'parallel', *FLAGS]
    command += [f'--logdir={logdir}', '--engine=ray', f'--ray.address={nodes.address}']
    command += [f'--ray.{kind}.resource={kind}' for kind in KINDS]
    command += ['--ray.*.cpus=0', '--run.envs_per_worker=8']
    command += [f'--run.duration={60 * minutes}']
    watch = FolderWatch(logdir)
    process = subprocess.Popen(command, stdout=sys.stderr)
    watch.follow(process.pid)
    recovery = {}
    try:
        for role in ('agent', 'replay', 'env0'):
            await_running(watch, process, logdir, role)
        begin = time.monotonic()
        for share, (node, kind) in kills.items():
            left = begin + 60 * minutes * share - time.monotonic()
            if ends_within(process, left):
                break
            recovery[kind] = kill(watch, process, logdir, nodes, node, kind)
        return process.wait(), recovery
    finally:
        process.kill()
        process.wait()
        watch.close()


def kill(
    watch: FolderWatch,
    process: subprocess.Popen,
    logdir: Path,
    nodes: ray_nodes.Nodes,
    node: str,
    kind: str,
) -> float:
    """Kills a node and adds another one: seconds until its roles work again."""
    events = read_records(logdir / 'events.jsonl')
    homes = {x['role']: x['node'] for x in events if x['event'] == 'placed'}
    begin = time.monotonic()
    nodes.kill(node)
    nodes.add(**{kind: 1})
    for role in (role for role, home in homes.items() if home == node):
        await_running(watch, process, logdir, role, len(events))
    return round(time.monotonic() - begin, 1)


def await_running(
    watch: FolderWatch,
    process: subprocess.Popen,
    logdir: Path,
    role: str,
    since: int = 0,
) -> None:
    signs = {'event': 'role', 'role': role, 'state': 'running'}

    def runs() -> bool:
        assert process.poll() is None, 'the run has ended'
        events = read_records(logdir / 'events.jsonl')[since:]
        return any(event.items() >= signs.items() for event in events)

    watch.await_that(runs, DEADLINE)


def ends_within(process: subprocess.Popen, seconds: float) -> bool:
    try:
        process.wait(max(0.0, seconds))
    except subprocess.TimeoutExpired:
        return False
    return True


def learned(logdir: Path) -> dict[str, Any]:
    scores = [x['score'] for x in read_records(logdir / 'scores.jsonl')][-RECENT:]
    score = float(np.mean(scores)) if scores else float('nan')
    levels = demo.levels_of(config_lib.resolve(FLAGS)[0])
    counters = Manifest.read(logdir / 'ckpt').counters
    return {
        'gap_closed': round(demo.gap_closed(score, levels), 3),
        'score': round(score, 3),
        **{name: counters.get(name, 0) for name in ('steps', 'updates')},
    }


if __name__ == '__main__':
    main()
