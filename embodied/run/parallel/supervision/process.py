"""Child process: one role of a run, as its launcher sees it."""

import contextlib
import datetime
import os
import signal
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Pipe
from pathlib import Path
from typing import Any, NamedTuple

import cloudpickle

from ....processes import cpu, lineage
from ....processes.child_processes import Surroundings, kill_group, start_module
from ....processes.failure import Failure
from ..timeouts import LAST_OUTPUT
from .health import Heartbeat
from .role_failure import RoleFailure
from .role_logs import START_LINE, Incomplete, LogWriter

__all__ = [
    'ENDED',
    'PLACED',
    'SHOW_STACKS',
    'STOPPED',
    'ChildProcess',
    'End',
    'RoleEvent',
    'RoleSpec',
]

MODULE = 'embodied.run.parallel.supervision.child_main'
ENDED, STOPPED = 'ended', 'stopped'
PLACED = 'placed'  # on a machine, which took its time
VMSTAT = Path('/proc/vmstat')
SHOW_STACKS = signal.SIGUSR1  # makes a child write the stacks of its threads to its log


class RoleSpec(NamedTuple):
    """First message to a child: how to become like the parent, and what to run."""

    surroundings: Surroundings
    call: bytes  # cloudpickled role and its arguments
    environ: Mapping[str, str] = {}  # variables that other processes must not see

    @classmethod
    def of(cls, role: Callable[..., None], args: tuple) -> 'RoleSpec':
        return cls(Surroundings.here(), cloudpickle.dumps((role, args)))


class End(NamedTuple):
    """Message to a child: end cleanly, without waiting for roles that are gone."""

    gone: Sequence[str] = ()
    reason: str = ''  # why the launcher ends the run, if it does


class RoleEvent(NamedTuple):
    """Something that a role does, or that happens to it."""

    process: Any  # the ChildProcess
    what: Heartbeat | str  # ENDED, STOPPED, PLACED


class ChildProcess:
    """One role in a process of its own; `notify` is called with each RoleEvent of it.

    Its output goes to `log`; with `shown`, what it prints goes to our own output, or to
    the descriptor that it is. All its descendants carry `run_tag` and end with it.
    `incomplete` has the files that a full disk keeps from being written.
    """

    def __init__(
        self,
        name: str,
        spec: RoleSpec,
        log: Path,
        run_tag: str,
        notify: Callable[[RoleEvent], Any],
        shown: bool | int = False,
        incomplete: Incomplete | None = None,
    ) -> None:
        self.name = name
        self._log = log
        self._run_tag = run_tag
        self._notify = notify
        self._asked = False  # to end
        self._oom_kills = _oom_kills()
        self._cause = ''  # why we have killed it
        self._failure: Failure | None = None
        self._pipe, theirs = Pipe()
        self._sending = threading.Lock()
        now = datetime.datetime.now().isoformat(sep=' ', timespec='seconds')
        first = f'{START_LINE} at {now}\n'.encode()
        self._output = LogWriter(log, first, incomplete=incomplete)
        with theirs, contextlib.ExitStack() as stack:
            stack.callback(self._output.close, LAST_OUTPUT)
            stack.callback(self._output.start)
            stdout = None if shown is True else shown or self._output
            self._process = start_module(
                MODULE,
                theirs.fileno(),
                env={lineage.TAG: run_tag},
                stdout=stdout,
                stderr=self._output,
            )
            stack.pop_all()
        self._output.start()
        self._listener = self._thread(self._listen, spec)
        self._watcher = self._thread(self._watch)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def node(self) -> str:
        return ''

    def cpu_seconds(self) -> float:
        return cpu.of_family(self.pid)

    def ask(self, gone: Sequence[str] = (), reason: str = '') -> None:
        """Asks the role to end cleanly; a second time would end it at once."""
        if not self._asked:
            self._asked = True
            # Not by a signal, of which the libraries inside may think otherwise, and
            # not from here: the pipe of a child that does not listen may be full.
            self._thread(self._send, End(gone, reason))
            self._signal(signal.SIGCONT)  # in case that it is stopped

    def kill(self, cause: str = '') -> None:
        """Ends it at once, and its process group with it."""
        self._cause = cause
        self._signal(signal.SIGKILL)

    def go_on(self) -> None:
        """Continues it after a stop signal."""
        self._signal(signal.SIGCONT)

    def show_stacks(self) -> None:
        """Makes it write the stacks of its threads to its log."""
        self._signal(SHOW_STACKS)

    def collect(self) -> RoleFailure | None:
        """Waits for the end and kills its descendants; how it failed, if it did.

        A child that SIGTERM has ended is no failure if it was asked to end: it had not
        yet begun to handle the signal.
        """
        self._watcher.join()
        kill_group(self.pid)
        code = self._process.wait()
        lineage.end(self._run_tag)
        self._listener.join(LAST_OUTPUT)
        self._hang_up()
        self._output.close(LAST_OUTPUT)
        if code == 0 or (self._asked and code == -signal.SIGTERM):
            return None
        cause = self._cause
        if code == -signal.SIGKILL and not cause and _oom_kills() > self._oom_kills:
            cause = 'killed because the machine was out of memory'
        return RoleFailure(self.name, self.pid, code, self._log, self._failure, cause)

    def _hang_up(self) -> None:
        """Ends the use of the pipe by other threads, and closes it."""
        end = socket.socket(fileno=self._pipe.fileno())
        with contextlib.suppress(OSError):  # The other end is gone already.
            end.shutdown(socket.SHUT_RDWR)
        end.detach()
        self._listener.join()
        # None of them may be in the middle of a call: the number of the descriptor is
        # soon that of another file.
        with self._sending:
            self._pipe.close()

    def _thread(self, target: Callable[..., None], *args: Any) -> threading.Thread:
        name = f'{target.__name__.strip("_")}-{self.name}'
        thread = threading.Thread(target=target, args=args, name=name, daemon=True)
        thread.start()
        return thread

    def _listen(self, spec: RoleSpec) -> None:
        self._send(spec)
        # A child that is gone is noticed by the other thread.
        with contextlib.suppress(OSError, EOFError):
            while True:
                message = self._pipe.recv()
                if isinstance(message, Failure):
                    self._failure = message
                else:
                    self._notify(RoleEvent(self, message))

    def _send(self, message: RoleSpec | End) -> None:
        with contextlib.suppress(OSError), self._sending:
            self._pipe.send(message)

    def _watch(self) -> None:
        """Notifies of the end, and of stop signals before it."""
        while True:
            # Not reaped, so that its id stays valid for signals to it.
            states = os.WEXITED | os.WSTOPPED | os.WNOWAIT
            info = os.waitid(os.P_PID, self.pid, states)
            assert info
            if info.si_code != os.CLD_STOPPED:
                self._notify(RoleEvent(self, ENDED))
                return
            os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOHANG)
            self._notify(RoleEvent(self, STOPPED))

    def _signal(self, number: int) -> None:
        if self._process.returncode is None:
            if number == signal.SIGKILL:
                kill_group(self.pid)
                return
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(self.pid, number)


def _oom_kills() -> int:
    """How many processes the kernel has killed since the boot to free memory."""
    if not VMSTAT.exists():
        return 0
    lines = (line.split() for line in VMSTAT.read_text().splitlines())
    return next((int(value) for name, value in lines if name == 'oom_kill'), 0)
