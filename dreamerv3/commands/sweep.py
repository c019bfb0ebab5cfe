"""`dreamer sweep`: several tasks with several seeds, a few at a time, one summary.

    FOLDER/<task>-<seed>/      the runs
    FOLDER/<task>-<seed>.log   what they printed
    FOLDER/summary.json        one entry per run, with its state: finished, stopped,
                               killed, failed with a code, or not started

The same command continues: runs that have finished are left alone.
"""

import argparse
import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from embodied.core.errors import ConfigError
from embodied.core.files import write_whole
from embodied.core.outside import shown
from embodied.logging import read_records
from embodied.processes.guard import Guard
from embodied.processes.lineage import TAG
from embodied.processes.output import lasting_output
from embodied.run.shared.outcome import DURATION, FINISHED, KILLED, Outcome

from ..api.training import Run
from ..dashboard.figures.final_score import DEFINITION, final_score
from ..run_folder import expand

__all__ = ['main']

FAILED = 1  # exit code
MEMORY_SHARE = 0.9  # of an accelerator, for all runs at a time together
MEMORY = 'XLA_PYTHON_CLIENT_MEM_FRACTION'
MARK_BYTES = 8


class Job(NamedTuple):
    task: str
    seed: int
    logdir: Path

    @property
    def log(self) -> Path:
        return self.logdir.with_name(f'{self.logdir.name}.log')


def main(argv: Sequence[str]) -> int:
    args, flags = _parse(argv)
    folder = Path(expand(args.logdir, 'sweep'))
    jobs = [
        Job(task, seed, folder / f'{re.sub(r"[^A-Za-z0-9_.-]+", "-", task)}-{seed}')
        for seed in range(args.seeds)
        for task in args.task
    ]
    folder.mkdir(parents=True, exist_ok=True)
    print(f'{len(jobs)} runs, {args.at_once} at a time, in {folder}', flush=True)
    with lasting_output():
        return _run(folder, jobs, args, flags)


def _run(
    folder: Path, jobs: Sequence[Job], args: argparse.Namespace, flags: Sequence[str]
) -> int:
    codes = asyncio.run(_Sweep(jobs, args, flags).run())
    summary = [_summarize(job, codes.get(job)) for job in jobs]
    write_whole(folder / 'summary.json', json.dumps(summary, indent=1) + '\n')
    _print(args.task, summary)
    return 0 if all(map(_complete, summary)) else FAILED


def _parse(argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(
        prog='dreamer sweep',
        description='Trains several tasks with several seeds, a few at a time.',
        epilog='All other options go to every run, as in `dreamer train`.',
        allow_abbrev=False,
    )
    parser.add_argument('--task', nargs='+', required=True)
    parser.add_argument('--seeds', type=int, default=1, help='0 to SEEDS - 1')
    parser.add_argument('--at-once', type=int, default=1, help='runs at a time')
    parser.add_argument('--script', choices=('train', 'parallel'), default='train')
    parser.add_argument('--logdir', default='~/logdir/{timestamp}-sweep')
    args, flags = parser.parse_known_args(argv)
    for name in ('seeds', 'at_once'):
        if getattr(args, name) < 1:
            option = name.replace('_', '-')
            raise ConfigError(f'--{option}={getattr(args, name)} must be at least 1.')
    if len(set(args.task)) < len(args.task):
        raise ConfigError(f'--task names one twice: {" ".join(args.task)}.')
    return args, flags


class _Sweep:
    """Runs the commands of all jobs; after a signal, no further one is started."""

    def __init__(
        self, jobs: Sequence[Job], args: argparse.Namespace, flags: Sequence[str]
    ) -> None:
        self._jobs = jobs
        self._script = args.script
        self._flags = flags
        self._slots = asyncio.Semaphore(args.at_once)
        self._mark = os.urandom(MARK_BYTES).hex()  # of the runs
        self._environ = {**os.environ, TAG: self._mark}
        if args.at_once > 1:
            self._environ.setdefault(MEMORY, f'{MEMORY_SHARE / args.at_once:.3f}')
        self._running: set[asyncio.subprocess.Process] = set()
        self._stopped = False
        self._codes: dict[Job, int] = {}

    async def run(self) -> dict[Job, int]:
        """Exit codes of the jobs that were started."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
                loop.add_signal_handler(number, self._stop, number)
        with Guard(self._mark):  # ends the runs if this process is killed
            await asyncio.gather(*map(self._work, self._jobs))
        return self._codes

    async def _work(self, job: Job) -> None:
        async with self._slots:
            if self._stopped:
                return
            with job.log.open('ab') as log:
                process = await asyncio.create_subprocess_exec(
                    *self._command(job),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=self._environ,
                    # Ctrl-C in the terminal is passed on once, by this process.
                    process_group=0,
                )
                self._running.add(process)
                self._codes[job] = await process.wait()
                self._running.discard(process)
        done = len(self._codes)
        entry = _summarize(job, self._codes[job])
        print(f'{done} of {len(self._jobs)}: {_line(entry)}', flush=True)

    def _stop(self, number: int) -> None:
        """Each run decides which signals are repeats of the first."""
        self._stopped = True
        for process in self._running:
            process.send_signal(number)

    def _command(self, job: Job) -> list[str]:
        own = [f'--task={job.task}', f'--seed={job.seed}', f'--logdir={job.logdir}']
        return [sys.executable, '-m', 'dreamerv3', self._script, *self._flags, *own]


def _summarize(job: Job, code: int | None) -> dict[str, Any]:
    run = Run(job.logdir)
    score = final_score(job.logdir)
    state, reason = _outcome(job, code)
    return {
        'task': job.task,
        'seed': job.seed,
        'state': state,
        'reason': reason,
        'steps': run.steps,
        'episodes': len(run.episodes),
        'score': None if score is None else round(score, 4),
    }


def _outcome(job: Job, code: int | None) -> Outcome:
    """What the run itself says of its end, if it could."""
    if code is None:
        return Outcome('not started', '')
    events = read_records(job.logdir / 'events.jsonl')
    stops = [x for x in events if x['event'] == 'stop']
    last = stops[-1] if stops else {}
    outcome = Outcome(last.get('state', ''), last.get('reason', ''))
    if code == 0 or outcome.state == KILLED:
        return outcome
    return Outcome(f'failed with {code}, see {job.log}', outcome.reason)


def _complete(entry: dict[str, Any]) -> bool:
    """Whether a run has reached its limit."""
    return entry['state'] == FINISHED or entry['reason'] == DURATION


def _line(entry: dict[str, Any]) -> str:
    return shown(
        f'{entry["task"]} seed {entry["seed"]}: {entry["state"]}, step '
        f'{entry["steps"]}, {entry["episodes"]} episodes, score {entry["score"]}',
        keep='',
    )


def _print(tasks: Sequence[str], summary: Sequence[dict[str, Any]]) -> None:
    width = max(map(len, tasks))
    print(f'\n{"task":{width}}  seeds    mean     std     min     max')
    for task in tasks:
        scores = [
            entry['score']
            for entry in summary
            if entry['task'] == task and entry['score'] is not None
        ]
        if not scores:
            print(f'{task:{width}}      0')
            continue
        figures = np.mean(scores), np.std(scores), min(scores), max(scores)
        columns = ' '.join(f'{figure:7.4g}' for figure in figures)
        print(f'{task:{width}}  {len(scores):5} {columns}')
    print(DEFINITION)
