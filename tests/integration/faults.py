"""A run in processes of its own, to be harmed and watched from outside."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import fault_parts
import psutil
from watching import FolderWatch

from embodied.core.checkpoint import load_part
from embodied.logging import read_records
from embodied.run.parallel.saves.manifest import Manifest

HERE = Path(__file__).parent
SECONDS = 90  # to recover from anything
MINIMUM = fault_parts.BATCH * (fault_parts.LENGTH + fault_parts.CONTEXT)
BAND = 4 * fault_parts.BATCH  # sequences that the limiter allows on either side


class FaultyRun:
    """Starts the command that a user would start; `flags` are its options.

    prefix: what to put before it, to start it on another host.
    """

    def __init__(self, logdir, *flags, script=HERE / 'fault_parts.py', prefix=()):
        self.logdir = Path(logdir)
        self.logdir.mkdir(parents=True, exist_ok=True)
        self._events = FolderWatch(self.logdir)
        self._audit = FolderWatch(fault_parts.audit_path(logdir).parent)
        self._seen = len(self._read())
        command = [*prefix, sys.executable, str(script), str(logdir), *flags]
        with (self.logdir / 'launcher.log').open('ab') as log:
            self.launcher = subprocess.Popen(
                command, stdout=log, stderr=log, start_new_session=True
            )
        for watch in (self._events, self._audit):
            watch.follow(self.launcher.pid)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.kill_everything()
        self._events.close()
        self._audit.close()

    # Waiting

    def events(self):
        """Those of this start of the run, oldest first."""
        return self._read()[self._seen :]

    def await_event(self, condition, seconds=SECONDS, since=0):
        """The first event, after so many, for which the condition holds."""
        find = lambda: next((x for x in self.events()[since:] if condition(x)), None)
        return self._events.await_that(lambda: find() or self._check(), seconds)

    def await_running(self, role, since=0, seconds=SECONDS):
        """Blocks until the role runs, as told after so many events; its process."""
        signs = {'event': 'role', 'role': role, 'state': 'running'}
        running = lambda event: event.items() >= signs.items()
        return self.await_event(running, seconds, since)['pid']

    def await_point(self, seconds=SECONDS):
        """Blocks until an agent is where it pauses."""
        path = self.logdir / fault_parts.POINT
        self._events.await_that(lambda: path.exists() or self._check(), seconds)
        path.unlink()

    def await_steps(self, more=200, seconds=SECONDS):
        """Blocks until so many steps have been stored from now on."""
        goal = self.stored + more
        self._audit.await_that(
            lambda: self.stored >= goal or self._check(), seconds=seconds
        )

    def await_new_streams(self, known, count, seconds=SECONDS):
        """Blocks until steps of so many streams have been stored that are not known."""
        streams = lambda: set(fault_parts.acknowledged(self.logdir)['stream'])
        self._audit.await_that(
            lambda: len(streams() - known) >= count or self._check(), seconds
        )

    def await_steps_or_end(self, more, seconds=SECONDS):
        """The same, unless the run ends before: whether it has ended."""
        goal = self.stored + more
        ended = lambda: self.launcher.poll() is not None
        self._audit.await_that(lambda: self.stored >= goal or ended(), seconds)
        return ended()

    def wait(self, seconds=SECONDS):
        """Exit code of the launcher."""
        return self.launcher.wait(seconds)

    # Looking

    @property
    def stored(self):
        path = fault_parts.audit_path(self.logdir)
        return path.stat().st_size // fault_parts.ROW.itemsize if path.exists() else 0

    @property
    def log(self):
        return (self.logdir / 'launcher.log').read_text()

    def pid(self, role):
        """Of the newest process that has started for the role."""
        starts = [x for x in self.events() if x.get('role') == role and 'pid' in x]
        return starts[-1]['pid']

    def processes(self):
        """The launcher and everybody below it."""
        try:
            launcher = psutil.Process(self.launcher.pid)
            return [launcher, *launcher.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    # Harming

    def kill(self, role):
        """Kills a role; returns how many events there were before."""
        events = len(self.events())
        os.kill(self.pid(role), signal.SIGKILL)
        return events

    def interrupt(self):
        """As Ctrl-C does."""
        self.launcher.send_signal(signal.SIGINT)

    def kill_everything(self):
        processes = self.processes()
        for process in processes:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        self.launcher.wait()
        _, alive = psutil.wait_procs(processes, SECONDS)
        assert alive == []

    def _read(self):
        return read_records(self.logdir / 'events.jsonl')

    def _check(self):
        """Ends a wait in vain: without a launcher nothing will happen."""
        code = self.launcher.poll()
        assert code is None, f'the run has ended with {code}:\n{self.log[-3000:]}'


def check_folder(logdir):
    """Nothing acknowledged is lost, nothing is there twice, all counters agree."""
    found = fault_parts.audit(logdir)
    assert (found.lost, found.doubled, found.holes) == (0, 0, 0), found
    assert found.acknowledged > 0
    saved = load_part(Path(logdir) / 'ckpt' / 'agent', 'learner')
    counters = Manifest.read(Path(logdir) / 'ckpt').counters
    assert counters['updates'] == saved['updates']
    assert counters['trained'] == saved['trained']
    assert counters['trained'] == fault_parts.BATCH * saved['updates']
    check_metrics(logdir)
    return found


def check_ratio(logdir, ratio, rollout=0):
    """Training is where the steps say it is. rollout: steps that come together."""
    counters = Manifest.read(Path(logdir) / 'ckpt').counters
    earned = (counters['steps'] - MINIMUM) * ratio / fault_parts.LENGTH
    slack = BAND + 2 * fault_parts.BATCH  # an update runs, another is owed in part
    slack += rollout * ratio / fault_parts.LENGTH
    assert abs(counters['trained'] - earned) <= slack, (counters, earned)


def check_metrics(logdir):
    """What goes back in the metrics is explained by an event."""
    records = read_records(Path(logdir) / 'metrics.jsonl')
    events = read_records(Path(logdir) / 'events.jsonl')
    rewinds = sum(event['event'] == 'rewind' for event in events)
    restored = sum(event['event'] == 'restored' for event in events)
    steps = [record['step'] for record in records]
    updates = [x['train/updates'] for x in records if 'train/updates' in x]
    assert falls(steps) <= rewinds
    assert falls(updates) <= restored


def falls(values):
    return sum(b < a for a, b in zip(values, values[1:], strict=False))
