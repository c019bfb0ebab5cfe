"""`dreamer sweep`: tasks, seeds and options, a few runs at a time, one table.

    FOLDER/<task>-<options>-<seed>/      the runs
    FOLDER/<task>-<options>-<seed>.log   what they printed
    FOLDER/summary.json  one entry per run, with its options and its state: finished,
                         stopped, killed, failed with a code, or not started

The same command continues: runs that have finished are left alone.
"""

import argparse
import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from embodied.core.errors import ConfigError
from embodied.core.files import write_whole
from embodied.processes.folder_lock import FolderLock
from embodied.processes.guard import Guard
from embodied.processes.lineage import TAG
from embodied.processes.output import lasting_output

from ... import accelerator
from ... import config as config_lib
from ...dashboard.figures.final_score import DEFINITION
from ...loops import SIGNALED
from ...run_folder import expand
from . import score_table
from .jobs import (
    Job,
    failures,
    is_complete,
    is_failed,
    jobs_of,
    print_line,
    summarize,
)
from .places import Places, usable_cores
from .space import settings_of

__all__ = ['main']

FAILED = 1  # exit code
MARK_BYTES = 8
SUMMARY = 'summary.json'
HELP = """\
All other options go to every run, as in `dreamer train`. --vary takes any of them:

  dreamer sweep --task toy_catch --configs tiny --seeds 2 --at-once 2 \\
    --vary agent.actent=1e-4,3e-4,1e-3 run.train_ratio=32,64
  dreamer sweep --task toy_catch --configs tiny --random 20 \\
    --vary agent.opt.lr=log:1e-5..1e-3 configs=size1m,size12m

The same command goes on: what has finished is left alone, what has failed is tried
again. Ctrl-C ends all runs with a last save.
"""


def main(argv: Sequence[str]) -> int:
    args, flags = _parse(argv)
    folder = Path(expand(args.logdir, 'sweep'))
    options = config_lib.load_presets()['defaults']
    settings = settings_of(args.vary, options, args.random, args.list)
    flags = [*flags, f'--script={args.script}']
    jobs = jobs_of(folder, args.task, settings, args.seeds, flags)
    config, _ = config_lib.resolve(flags)
    on_gpu = not accelerator.only_cpu(config)
    places = Places(args.at_once, on_gpu, os.environ, usable_cores())
    with FolderLock(folder), lasting_output():
        print(f'{len(jobs)} runs, {args.at_once} at a time{places.text}, in {folder}')
        print(f'To look at them: dreamer watch {folder}', flush=True)
        return _Sweep(folder, jobs, places, args).run()


def _parse(argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(
        prog='dreamer sweep',
        description='Trains with several tasks, options and seeds, a few at a time.',
        epilog=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add('--task', nargs='+', required=True)
    add('--seeds', type=int, default=1, help='0 to SEEDS - 1, of each setting')
    add(
        '--vary',
        nargs='+',
        action='extend',
        default=[],
        metavar='OPTION=VALUES',
        help='A,B,C, with --random also LOW..HIGH or log:LOW..HIGH; repeatable',
    )
    add('--random', type=int, default=0, metavar='N', help='N settings at random')
    add('--list', action='store_true', help='values in step instead of a grid')
    add('--at-once', type=int, default=1, help='runs at a time')
    add('--skip-failed', action='store_true', help='do not try failed runs again')
    add('--script', choices=('train', 'parallel'), default='train')
    add('--logdir', default='~/logdir/{timestamp}-sweep')
    args, flags = parser.parse_known_args(argv)
    _check(args, flags)
    return args, flags


def _check(args: argparse.Namespace, flags: Sequence[str]) -> None:
    for name, least in {'seeds': 1, 'at_once': 1, 'random': 0}.items():
        if getattr(args, name) < least:
            given = f'--{name.replace("_", "-")}={getattr(args, name)}'
            raise ConfigError(f'{given} must be at least {least}.')
    if len(set(args.task)) < len(args.task):
        raise ConfigError(f'--task names one twice: {" ".join(args.task)}.')
    if args.random and args.list:
        raise ConfigError('--random draws values and --list pairs them: choose one.')
    if 'seed' in config_lib.parse_flags(flags):
        raise ConfigError('A sweep takes --seeds N, the seeds 0 to N - 1, not --seed.')


class _Sweep:
    """Runs the commands of all jobs; after a signal, no further one is started."""

    def __init__(
        self, folder: Path, jobs: Sequence[Job], places: Places, args: Any
    ) -> None:
        self._summary = folder / SUMMARY
        self._jobs = jobs
        self._script = args.script
        self._places = places
        self._free: asyncio.Queue[frozenset[int]] = asyncio.Queue()
        for cores in places.cores:
            self._free.put_nowait(cores)
        self._mark = os.urandom(MARK_BYTES).hex()  # of the runs
        self._environ = {**places.environ, TAG: self._mark}
        self._running: set[asyncio.subprocess.Process] = set()
        self._signal: int | None = None  # the last one that has come
        self._left: list[Job] = []
        before = _read_summary(self._summary)
        self._entries = {job: summarize(job, None, before) for job in jobs}
        self._choose(args.skip_failed)

    def _choose(self, skip_failed: bool) -> None:
        """Decides what there is to run, and says so."""
        failed = [job for job in self._jobs if is_failed(self._entries[job])]
        over = [job for job in self._jobs if job not in failed and job.is_over()]
        if over:
            print(f'{len(over)} of them have finished and are left alone.')
        if failed:
            names = ', '.join(job.logdir.name for job in failed)
            what = 'left alone' if skip_failed else 'tried again (not: --skip-failed)'
            print(f'{len(failed)} of them have failed and are {what}: {names}')
        done = {*over, *(failed if skip_failed else ())}
        self._left = [job for job in self._jobs if job not in done]
        sys.stdout.flush()

    def run(self) -> int:
        """Runs what is left; the exit code."""
        asyncio.run(self._run())
        entries = self._write_summary()
        print(f'\n{score_table.to_text(score_table.rows_of(entries))}')
        print(DEFINITION)
        if names := failures(entries):
            print(f'{len(names)} failed: {", ".join(names)}. The same command tries')
            print(f'them again; what they said: {self._summary.parent}/NAME.log')
        open_ones = sum(not (is_complete(x) or is_failed(x)) for x in entries)
        if open_ones:
            print(f'{open_ones} are not finished; the same command goes on with them.')
        return FAILED if names or open_ones else 0

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
                loop.add_signal_handler(number, self._stop, number)
        with Guard(self._mark):  # ends the runs if this process is killed
            await asyncio.gather(*map(self._work, self._left))

    async def _work(self, job: Job) -> None:
        cores = await self._free.get()
        try:
            if self._signal is None:
                await self._train(job, cores)
        finally:
            self._free.put_nowait(cores)

    async def _train(self, job: Job, cores: frozenset[int]) -> None:
        with contextlib.ExitStack() as stack:
            log = stack.enter_context(job.log.open('ab'))
            with self._places.binding(cores):
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, '-m', 'dreamerv3', self._script, *job.argv),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=self._environ,
                    # Ctrl-C in the terminal is passed on once, by this process.
                    process_group=0,
                )
            self._running.add(process)
            stack.callback(self._running.discard, process)
            if self._signal is not None:  # which came while it was being started
                _pass_on(process, self._signal)
            code = await process.wait()
        number = self._signal
        # One that comes before the run handles signals is no failure of it.
        ended = number and code in (-number, SIGNALED + number)
        self._entries[job] = summarize(job, None if ended else code)
        self._write_summary()
        self._left.remove(job)
        done = len(self._jobs) - len(self._left)
        print_line(self._entries[job], f'{done} of {len(self._jobs)}: ')

    def _stop(self, number: int) -> None:
        """Each run decides which signals are repeats of the first."""
        self._signal = number
        for process in self._running:
            _pass_on(process, number)

    def _write_summary(self) -> list[dict[str, Any]]:
        entries = [self._entries[job] for job in self._jobs]
        write_whole(self._summary, json.dumps(entries, indent=1) + '\n')
        return entries


def _pass_on(process: asyncio.subprocess.Process, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # it has just ended
        process.send_signal(number)


def _read_summary(path: Path) -> dict[str, Mapping[str, Any]]:
    """The entries of the last time by name of the run."""
    if not path.exists():
        return {}
    entries = json.loads(path.read_text())
    # Version 0.1.0 had other ones.
    return {entry['run']: entry for entry in entries if 'run' in entry}
