"""Whole runs with parts that are not ours, and what must be in their folders."""

import functools
from pathlib import Path

import foreign

from embodied import transport
from embodied.core.checkpoint import load_part, load_part_and_step
from embodied.logging import read_records
from embodied.run import parallel

HERE = Path(__file__).parent
SECONDS = 60  # until a process that should end counts as hanging
MINIMUM = 15  # steps before training: a batch of sequences
bind = functools.partial


def fixed_addresses():
    names = ('actor_addr', 'replay_addr', 'logger_addr')
    return {name: f'localhost:{transport.free_port()}' for name in names}


def run_combined(
    logdir,
    make_agent=foreign.Agent,
    make_env=foreign.Env,
    make_replay=foreign.Replay,
    make_logger=None,
    **changes,
):
    parallel.combined(
        make_agent,
        make_replay,
        foreign.Replay,
        make_env,
        foreign.Env,
        foreign.make_stream,
        make_logger or bind(foreign.make_logger, logdir),
        foreign.make_args(logdir, **changes),
    )


def check_finished(logdir, steps=300, ratio=4.0):
    """The folder of a run that has come to its end, with all counters in agreement."""
    updates = load_part(logdir / 'ckpt' / 'agent', 'agent')['updates']
    committed = load_part_and_step(logdir / 'ckpt' / 'replay', 'replay')[1]
    assert steps <= committed < steps + 3
    # Behind by less than one update, ahead by no more than the limiter allows.
    earned = (committed - MINIMUM) * ratio / foreign.LENGTH
    assert earned - foreign.BATCH < updates * foreign.BATCH <= earned + 4 * 3
    records = read_records(logdir / 'metrics.jsonl')
    numbers = [record['step'] for record in records]
    assert numbers == sorted(numbers)
    assert numbers[-1] == committed
    counted = [x['train/updates'] for x in records if 'train/updates' in x]
    assert counted[-1] == updates
    ended = read_records(logdir / 'events.jsonl')[-1]
    assert (ended['event'], ended['reason']) == ('ended', 'run.steps')
    scores = read_records(logdir / 'scores.jsonl')
    assert {score['length'] for score in scores} == {9}
    return scores
