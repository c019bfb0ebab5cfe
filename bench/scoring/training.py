"""Training: runs as `dreamer` commands, several at once, as far as the time goes."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from .arms import PRESETS, Run
from .curves import curve_path, load_curve

__all__ = ['Plan', 'command', 'train']

MEMORY_SHARE = 0.9  # of the accelerator, for all runs together
GRACE = 90.0  # seconds that runs get to save


class Plan(NamedTuple):
    """How to train."""

    state: Path
    arms: Mapping[str, Sequence[str]]  # flags by name
    minutes: float
    frames: float | None  # of each run; None: as its preset says
    at_once: int
    script: str
    size: str | None  # size preset instead of the usual one
    carried: bool  # leave latents out of the files of replay
    flags: Sequence[str]  # of all runs


def train(runs: Iterable[Run], plan: Plan) -> None:
    """Continues all runs until they are done or the time is over."""
    deadline = time.monotonic() + 60 * plan.minutes
    share = MEMORY_SHARE / plan.at_once
    environ = {'XLA_PYTHON_CLIENT_MEM_FRACTION': f'{share:.3f}', **os.environ}
    advance = lambda run: _advance(run, plan, deadline, environ)
    with ThreadPoolExecutor(plan.at_once) as pool:
        for run, code in zip(runs, pool.map(advance, runs), strict=True):
            if code:
                log = plan.state / 'runs' / f'{run.name}.log'
                print(f'{run.name} failed with {code}; {log} ends with:')
                print(log.read_text()[-2000:], flush=True)


def command(run: Run, plan: Plan) -> list[str]:
    """The `dreamer` command of a run."""
    preset = PRESETS[run.preset]
    configs = (*preset.configs, plan.size) if plan.size else preset.configs
    options = {
        'task': run.task,
        'seed': run.seed,
        'logdir': plan.state / 'runs' / run.name,
        'jax.cache': plan.state / 'cache',
        'logger.outputs': 'jsonl',
        'run.steps': _frames(run, plan) / preset.repeat,
        'run.duration': 0,
        'run.eval_envs': 0,
        'run.film_every': 0,
        'run.report_every': 0,
        **({'replay.latents': 'ram'} if plan.carried else {}),
    }
    words = [sys.executable, '-m', 'dreamerv3', plan.script, '--configs', *configs]
    words += [f'--{k}={v}' for k, v in options.items()]
    return [*words, *preset.flags, *plan.arms[run.arm], *plan.flags]


def _frames(run: Run, plan: Plan) -> float:
    return plan.frames or PRESETS[run.preset].frames


def _done(run: Run, plan: Plan) -> bool:
    path = curve_path(run, plan.state)
    return path.exists() and load_curve(path).reached >= _frames(run, plan)


def _advance(run: Run, plan: Plan, deadline: float, environ: Mapping[str, str]) -> int:
    """Exit code of the run's command, which gets the time that is left."""
    left = deadline - time.monotonic()
    if left <= 0 or _done(run, plan):
        return 0
    folder = plan.state / 'runs'
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f'{run.name}.log').open('ab') as log:
        process = subprocess.Popen(
            command(run, plan), stdout=log, stderr=subprocess.STDOUT, env=environ
        )
        try:
            return process.wait(left)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGTERM)
        try:
            return process.wait(GRACE)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()
