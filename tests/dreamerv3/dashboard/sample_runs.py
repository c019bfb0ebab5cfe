"""Folders of runs as loops write them, with values that a person can work out."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from embodied.logging.video import VideoOutput
from embodied.processes.process_identity import ProcessIdentity, uptime

START = 1_790_000_000.0
ROLES = ('agent', 'replay', 'logger', 'env0', 'env8')


def append(path: Path, *records: dict[str, Any]) -> None:
    """Adds whole lines to a file."""
    with path.open('a') as file:
        file.writelines(json.dumps(record) + '\n' for record in records)


def line(index: int, level: float = 1.0) -> dict[str, Any]:
    """A line of metrics.jsonl."""
    return {
        'step': 100 * index,
        'time': START + 2.0 * index,
        'train/loss/total': level * 10 / (1 + index / 20),
        'train/imag/return': level * math.tanh(index / 40),
        'train/updates': 25.0 * index,
        'run/seconds': 5.0 + 2.0 * index,
        'episode/score': level * (2 / (1 + math.exp(-index / 20)) - 1),
        'fps/env': 118.0,
        'fps/train': 30.0,
        'actor/steps_per_second': 118.0,
        'actor/calls_per_second': 15.9,
        'actor/policy_ms': 46.8,
        'actor/batch_fill': 0.49,
        'learner/wait': 0.1,
        'replay/steps': 100.0 * index,
        'replay/gigabytes': 0.05,
        'replay/online_queue': 0.0,
        'replay/fill': 1.0,
        'replay/train_ratio': 31.9,
        'replay/insert_wait': 0.62,
        'replay/sample_wait': 0.01,
        'usage/agent/memory_gb': 0.78,
        'usage/replay/memory_gb': 0.08,
        'usage/logger/memory_gb': 0.06,
    }


def scores(index: int, level: float = 1.0) -> list[dict[str, Any]]:
    """Lines of scores.jsonl that go with a line of metrics."""
    base = level * (2 / (1 + math.exp(-index / 20)) - 1)
    return [
        {
            'step': 100 * index + 8 * env,
            'time': START + 2.0 * index,
            'env': env,
            'score': base + 0.3 * math.sin(12.9898 * index + 78.233 * env),
            'length': 7,
            'eval': False,
        }
        for env in range(4)
    ]


def make_run(
    folder: Path,
    lines: int = 100,
    level: float = 1.0,
    task: str = 'toy_catch',
    seed: int = 0,
    **options: Any,
) -> Path:
    """A whole run that has ended."""
    folder.mkdir(parents=True)
    config = {'script': 'parallel', 'logdir': str(folder), 'task': task, 'seed': seed}
    config['run'] = {'envs': 16, 'log_every': 2.0, 'train_ratio': 32.0} | options
    (folder / 'config.yaml').write_text(json.dumps(config))
    append(folder / 'metrics.jsonl', *[line(index, level) for index in range(lines)])
    for index in range(lines):
        append(folder / 'scores.jsonl', *scores(index, level))
    begin = {
        'time': START,
        'event': 'start',
        'script': 'parallel',
        'pid': 1,
        'host': '?',
    }
    end = {'time': START + 2 * lines, 'event': 'stop', 'reason': 'done'}
    append(folder / 'events.jsonl', begin, end)
    return folder


def write_status(
    folder: Path, state: str = 'running', **roles: str | dict[str, Any]
) -> None:
    """A status whose launcher is this process, with the given states of its roles."""
    described = {}
    for name in ROLES:
        given = roles.get(name, 'running')
        changes = given if isinstance(given, dict) else {'state': given}
        described[name] = {
            'state': 'running',
            'activity': '',
            'pid': 1,
            'restarts': 0,
            'error': '',
        } | changes
    record = {
        'state': state,
        **ProcessIdentity.of()._asdict(),
        'epoch': 1,
        'heartbeat': 0.0,
        'uptime': uptime() + 1e6,  # so that it does not grow old in a slow test
        'error': '',
        'roles': described,
    }
    temporary = folder / '.status.json'
    temporary.write_text(json.dumps(record))
    temporary.replace(folder / 'status.json')


def make_video(folder: Path, step: int, kind: str = 'gif') -> None:
    """A video of a square that falls, with its strip."""
    video = np.full((12, 16, 16, 3), 30, np.uint8)
    for index in range(12):
        video[index, index : index + 4, 6:10] = (240, 200, 80)
    VideoOutput(folder, kind=kind)([(step, 'report/open_loop/image', video)])
